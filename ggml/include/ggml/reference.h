#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "ggml/device.h"

namespace ggml {

/// Evaluates graphs as their decomposition into primitives, in double precision on the host: the meaning of every op,
/// against which devices are tested. Simple and slow.
///
/// Weights are decoded with dequantise_row() from their first placement, which must be host memory. Results are
/// rounded to their port's type when they are written there; everything between is double, except where an op rounds on
/// purpose (quantise_act, kv_append). Rows beyond the step's counts are neither read nor written. Thread-compatible;
/// Programs of different executors are independent.
class ReferenceExecutor final : public Executor {
 public:
  /// 0: results live in the Program.
  [[nodiscard]] std::size_t arena_bytes(const Graph& graph, const CompileOptions& options) override;
  /// Throws Error(invalid_argument) when a port is unbound or too small, Error(unsupported) when a weight is not in
  /// host memory. `arena` is not used. Borrows the ports' memory and the weights.
  std::unique_ptr<Program> compile(const Graph& graph, std::span<const PortBinding> ports, Buffer& arena,
                                   const CompileOptions& options) override;
  /// The same without an arena.
  std::unique_ptr<Program> compile(const Graph& graph, std::span<const PortBinding> ports,
                                   const CompileOptions& options);
  std::unique_ptr<Event> submit(Program& program, const StepCounts& counts, const StopToken& stop) override;
  void run(Program& program, const StepCounts& counts, const StopToken& stop) override;
};

/// Rounds a row to the form and back, as quantise_act means it. Whole blocks of the form's size; a shorter last block
/// is a block of its own.
void round_activations(ActType act, std::span<float> row) noexcept;

}  // namespace ggml
