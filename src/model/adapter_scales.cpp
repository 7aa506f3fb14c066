#include "model/adapter_scales.h"

#include <string>

#include "ggml/error.h"

namespace llama {

using ggml::Slot;
using ggml::TensorId;

void AdapterScales::select(TensorId row_ids) {
  for (Rows& rows : rows_) {
    rows.scales =
        graph_.select_rows(rows.scales, row_ids, "adapter_" + std::to_string(rows.adapter) + "_output_scales");
    rows.scaled.clear();
  }
}

TensorId AdapterScales::times(Rows& rows, float factor) {
  if (factor == 1.0f) return rows.scales;
  for (const Scaled& scaled : rows.scaled)
    if (scaled.factor == factor) return scaled.tensor;
  const ggml::UnaryParams params{.kind = ggml::UnaryKind::scale, .act = ggml::Activation::none, .a = factor};
  const TensorId tensor = graph_.unary(rows.scales, params, "adapter_" + std::to_string(rows.adapter) + "_factors");
  rows.scaled.push_back({factor, tensor});
  return tensor;
}

void AdapterScales::attach(const std::vector<AdapterPair>& pairs, Slot& slot) {
  for (const AdapterPair& pair : pairs)
    for (Rows& rows : rows_)
      if (rows.adapter == pair.adapter)
        slot.adapters.push_back({graph_.weight(*pair.a), graph_.weight(*pair.b), times(rows, pair.factor)});
}

Slot make_slot(ggml::GraphBuilder& graph, const TensorWithParts& tensor) {
  TANDEM_ASSERT(tensor.weight != nullptr, "a slot needs a weight; required tensors are checked when loading");
  Slot slot;
  slot.weight = graph.weight(*tensor.weight);
  if (tensor.bias != nullptr) slot.bias = graph.weight(*tensor.bias);
  if (tensor.scale != nullptr) slot.scale = graph.weight(*tensor.scale);
  return slot;
}

Slot make_slot(ggml::GraphBuilder& graph, const TensorWithParts& tensor, AdapterScales& adapters) {
  Slot slot = make_slot(graph, tensor);
  adapters.attach(tensor.adapters, slot);
  return slot;
}

}  // namespace llama
