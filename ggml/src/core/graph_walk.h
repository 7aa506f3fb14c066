#pragma once

#include "ggml/graph.h"

/// How nodes refer to tensors.
namespace ggml {

/// The tensor whose bytes `id` shows.
[[nodiscard]] inline TensorId base_of(const Graph& graph, TensorId id) {
  const Tensor& t = graph.at(id);
  return t.role == TensorRole::view ? t.base : id;
}

[[nodiscard]] inline std::size_t index(TensorId id) {
  return static_cast<std::size_t>(id.v);
}

/// Calls f(id) for each tensor of a slot; ids may be invalid.
template <class SlotOrConst, class F>
void for_each_of_slot(SlotOrConst& slot, F&& f) {
  f(slot.weight);
  f(slot.bias);
  f(slot.scale);
  for (auto& adapter : slot.adapters) {
    f(adapter.a);
    f(adapter.b);
    f(adapter.scales);
  }
}

/// Calls f(id) for each tensor that the node reads: sources, then what its slots hold.
template <class F>
void for_each_read(const Node& node, F&& f) {
  for (const TensorId id : node.src)
    if (id.valid()) f(id);
  for (const Slot& slot : node.slots)
    for_each_of_slot(slot, [&](const TensorId& id) {
      if (id.valid()) f(id);
    });
}

/// The source that is a state: memory of the caller that the op reads and may write. An invalid id: none.
[[nodiscard]] inline TensorId state_of(const Node& node) {
  switch (node.op) {
    case Op::attention:
    case Op::mla:
    case Op::delta_net:
      return node.src[3];
    case Op::kv_append:
      return node.src[2];
    case Op::attn_dense:
    case Op::conv1d:
      return node.src[1];
    case Op::delta_rule:
      return node.src[5];
    default:
      return {};
  }
}

}  // namespace ggml
