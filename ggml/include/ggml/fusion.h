#pragma once

#include "ggml/graph.h"

namespace ggml {

/// What stays one op where a device has one for it. Everything, unless somebody wants to compare.
struct Fusion {
  bool experts = true;     // up, gate, activation and down of routed experts
  bool up_gate = true;     // the same of dense feed-forwards
  bool expert_sum = true;  // weighting and adding what the experts gave
  [[nodiscard]] bool all() const { return experts && up_gate && expert_sum; }
};

/// The graph with what is not to be fused taken apart into smaller ops. Results keep their ids; what taps and biases
/// belong to stays with its projection.
[[nodiscard]] Graph unfuse(const Graph& graph, const Fusion& fusion);

}  // namespace ggml
