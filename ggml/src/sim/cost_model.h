#pragma once

#include <cstddef>

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
  /// Inside the device's memory.
  [[nodiscard]] double move_seconds(std::size_t bytes) const;

 private:
  const SimulatedDeviceSpec& spec_;
};

}  // namespace ggml::sim
