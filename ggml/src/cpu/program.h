#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cpu/bound_op.h"

namespace ggml::cpu {

/// A graph in the form the CPU runs: coarse nodes it has a kernel for, primitives for the rest.
struct LoweredGraph {
  Graph graph;
  std::vector<const OpImpl*> impls;  // per node
  std::vector<std::string> notes;    // per node, for describe()
};

/// Whether there is an implementation of the node itself, so that it is not decomposed.
[[nodiscard]] bool has_implementation(const Graph& graph, const KernelTable& kernels, const Node& node);

/// Chooses an implementation per node. Throws Error(unsupported) for a primitive that nothing here can do.
[[nodiscard]] LoweredGraph lower(const Graph& graph, const KernelTable& kernels, const CompileOptions& options);

/// Workspace of each node for teams of up to `n_workers`.
[[nodiscard]] std::vector<std::size_t> measure_scratch(const LoweredGraph& lowered, const KernelTable& kernels,
                                                       int n_workers);

struct CpuProgramInputs {
  const KernelTable& kernels;
  int n_workers;
  std::span<const PortBinding> ports;
  Buffer& arena;
  Observer* observer;
  DeviceId memory_of = {};  // valid: weights are read from this device's own memory (simulated devices), not the host's
};

/// A compiled graph with all addresses bound. Immutable but for its arena.
class CpuProgram final : public Program {
 public:
  CpuProgram(LoweredGraph lowered, const CpuProgramInputs& inputs);

  [[nodiscard]] const MemoryPlan& memory() const noexcept override { return plan_; }
  [[nodiscard]] std::vector<std::string> describe() const override { return lowered_.notes; }

  /// Runs all nodes in one parallel region. Throws what the observer threw, or Error(cancelled).
  void run(ThreadPool& pool, int team_size, const StepCounts& counts, const StopToken& stop);

 private:
  struct Observed {
    TensorId id;
    const std::byte* data;
    LiveRows rows;  // along the last axis
  };
  struct Step {
    std::unique_ptr<BoundOp> op;
    std::vector<Observed> observed;
    bool tapped = false;
  };
  struct RunState;

  void bind_addresses(const CpuProgramInputs& inputs);
  void bind_steps(const CpuProgramInputs& inputs, std::span<const std::size_t> scratch_offsets);
  void run_steps(Team& team, RunState& state) noexcept;
  void show(const Step& step, const StepCounts& counts) const;
  void check_counts(const StepCounts& counts) const;

  LoweredGraph lowered_;
  MemoryPlan plan_;
  std::vector<std::byte*> addresses_;  // per TensorId
  std::vector<Step> steps_;
  Observer* observer_;
};

}  // namespace ggml::cpu
