#pragma once

#include <string>
#include <vector>

#include "ggml/graph.h"
#include "ggml/simulated.h"

namespace ggml::sim {

/// What programs and copies would take on a device, from the costs of the ops.
class CostModel {
 public:
  explicit CostModel(const SimulatedDeviceSpec& spec) : spec_(spec) {}

  /// A node takes as long as the slower of its bytes and its arithmetic.
  [[nodiscard]] double run_seconds(const Graph& graph, const StepCounts& counts) const;
  [[nodiscard]] double copy_seconds(std::size_t bytes) const;

 private:
  const SimulatedDeviceSpec& spec_;
};

/// "blk.3 ffn_moe_out-3": first and last node of a graph, as a trace shows it.
[[nodiscard]] std::string label_of(const Graph& graph);

}  // namespace ggml::sim
