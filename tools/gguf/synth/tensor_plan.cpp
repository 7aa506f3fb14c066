#include "tensor_plan.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "tensor_lists.h"

namespace gguf_tool {
namespace {

/// The types of one model, by name; resolved only for tensors that exist.
struct Types {
  std::string_view base;
  std::string_view high;
  std::string_view head;
  std::string_view embedding;
  std::string_view expert;
  std::string_view exact;
};

Types types_of(const Preset& preset, const Mix& mix) {
  Types types{mix.weights, mix.high, mix.head, mix.embedding, mix.weights, "Q8_0"};
  if (preset.tied) types.embedding = mix.head;
  if (!preset.traits().expert_type.empty()) types.expert = preset.traits().expert_type;
  // In an MXFP4 file of a model with experts only these are MXFP4.
  if (preset.experts > 0 && types.base == "MXFP4") types.base = types.high = "Q8_0";
  if (types.base == "F16" || types.base == "BF16") types.exact = types.base;
  return types;
}

/// The layers whose attn_v and ffn_down get more bits: the first and last eighth and every third between.
bool gets_more_bits(int layer, int n_layers) {
  const int eighth = n_layers / 8;
  return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

class Planner {
 public:
  Planner(const Preset& preset, const Mix& mix) : preset_(preset), types_(types_of(preset, mix)) {}

  std::vector<PlannedTensor> run() {
    const TensorLists& lists = tensor_lists();
    add_all(lists.model);
    for (int layer = 0; layer < preset_.layers + preset_.mtp_layers; ++layer) {
      prefix_ = fmt::format("blk.{}.", layer);
      high_ = gets_more_bits(layer, preset_.layers) ? types_.high : types_.base;
      add_all(lists.norms);
      add_attention(layer);
      add_all(preset_.layer_has_experts(layer) ? lists.moe_ffn : lists.dense_ffn);
      if (layer >= preset_.layers) add_all(lists.mtp);
    }
    return std::move(plan_);
  }

 private:
  void add_attention(int layer) {
    const TensorLists& lists = tensor_lists();
    if (preset_.layer_is_delta(layer)) return add_all(lists.delta);
    add_all(preset_.mla ? lists.latent : lists.attention);
    add_all(lists.attn_output);
  }

  void add_all(std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (row.when == nullptr || row.when(preset_)) add(row);
    }
  }

  void add(const TensorRow& row) {
    PlannedTensor tensor;
    tensor.name = prefix_ + row.name;
    for (int axis = 0; axis < 3; ++axis) {
      if (row.extents[axis] != nullptr) tensor.shape[axis] = row.extents[axis](preset_);
    }
    tensor.type = row.role == Role::f32 ? ggml::DType::f32
                                        : type_for_matrix(type_name(row.role), tensor.shape[0], tensor.shape[1]);
    tensor.fill = row.fill;
    tensor.spread = spread_of(row, tensor.shape[0]);
    plan_.push_back(std::move(tensor));
  }

  [[nodiscard]] std::string_view type_name(Role role) const {
    switch (role) {
      case Role::f32:
        return "F32";
      case Role::base:
        return types_.base;
      case Role::high:
        return high_;
      case Role::head:
        return types_.head;
      case Role::embedding:
        return types_.embedding;
      case Role::exact:
        return types_.exact;
      case Role::expert:
        return types_.expert;
      case Role::expert_down:
        break;
    }
    return types_.expert == types_.base ? high_ : types_.expert;
  }

  [[nodiscard]] double spread_of(const TensorRow& row, std::int64_t row_length) const {
    const double root = std::sqrt(static_cast<double>(row_length));
    switch (row.fill) {
      case Fill::fixed:
        return row.spread;
      case Fill::by_row:
        return 0.7 / root;
      case Fill::unit_by_row:
        return 1 / root;
      case Fill::embedding:
        return preset_.tied ? 0.02 : 1.0;
      case Fill::router:
        return 1.5 / root;
      case Fill::ones:
      case Fill::rope_divisors:
      case Fill::time_step:
      case Fill::decay:
        break;
    }
    return 0;
  }

  const Preset& preset_;
  const Types types_;
  std::string prefix_;
  std::string_view high_;
  std::vector<PlannedTensor> plan_;
};

}  // namespace

std::vector<PlannedTensor> plan_tensors(const Preset& preset, const Mix& mix) {
  return Planner(preset, mix).run();
}

PlanTotals totals_of(const std::vector<PlannedTensor>& plan) {
  PlanTotals totals;
  for (const PlannedTensor& tensor : plan) {
    totals.bytes += ggml::tensor_bytes(tensor.type, tensor.shape);
    totals.elements += static_cast<std::uint64_t>(tensor.shape.elements());
  }
  return totals;
}

}  // namespace gguf_tool
