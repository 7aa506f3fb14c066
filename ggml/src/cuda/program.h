#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/lowered_graph.h"
#include "cuda/ports_on_card.h"
#include "cuda/resources.h"
#include "ggml/host_results.h"

namespace ggml::cuda {

/// Why a card has no kernel for the node; null: it has one.
[[nodiscard]] const char* declines(const Graph& graph, const Node& node);

/// Chooses an implementation per node. Throws Error(unsupported) for a primitive that nothing here can do.
[[nodiscard]] LoweredGraph lower(const Graph& graph, const CompileOptions& options);

/// Offsets of a lowered graph's activations and workspace in an arena.
[[nodiscard]] MemoryPlan plan(const LoweredGraph& lowered, int multiprocessors,
                              std::vector<std::size_t>& scratch_offsets);

struct CudaProgramInputs {
  int device = 0;
  int multiprocessors = 0;
  DeviceId id;  // whose placements hold the weights
  std::span<const PortBinding> ports;
  Buffer& arena;
  Observer* observer = nullptr;
};

/// A compiled graph with all addresses bound. Its kernels are captured into CUDA graphs at the first run, one graph for
/// each run of nodes without work for the host between them.
class CudaProgram final : public Program, public HostResults {
 public:
  CudaProgram(LoweredGraph lowered, const CudaProgramInputs& inputs);
  ~CudaProgram() override;

  [[nodiscard]] const MemoryPlan& memory() const noexcept override { return plan_; }
  [[nodiscard]] std::vector<std::string> describe() const override { return lowered_.notes; }
  [[nodiscard]] bool send_result(PortId port, std::byte* to) override { return ports_.send_result(port, to); }
  [[nodiscard]] std::optional<bool> gave_nan() const override { return ports_.gave_nan(); }
  [[nodiscard]] bool runs_ahead() const noexcept override;
  /// Kernels in the graphs that were captured so far.
  [[nodiscard]] std::size_t launches() const noexcept;

  /// Puts a step into the stream. Work for the host and observers wait for what comes before them; otherwise the call
  /// returns before the work is done.
  void run(cudaStream_t stream, const StepCounts& counts, const StopToken& stop);

 private:
  /// A run of nodes captured together, then what the host does.
  struct Stretch {
    std::size_t begin = 0, end = 0;  // nodes
    GraphExec graph;
    std::size_t launches = 0;
    const BoundOp* host = nullptr;
    std::vector<TensorId> observed;
    const Node* tapped = nullptr;
  };

  void bind_addresses(const CudaProgramInputs& inputs);
  void bind_ops(const CudaProgramInputs& inputs, std::span<const std::size_t> scratch_offsets);
  void cut_stretches();
  void capture(Stretch& stretch, cudaStream_t stream);
  [[nodiscard]] std::vector<std::byte> fetch(TensorId id, cudaStream_t stream) const;
  void show(const Stretch& stretch, const StepCounts& counts, cudaStream_t stream) const;
  void show_tap(const Node& node, const StepCounts& counts, cudaStream_t stream) const;

  LoweredGraph lowered_;
  MemoryPlan plan_;
  std::vector<std::byte*> addresses_;  // per TensorId
  std::vector<std::unique_ptr<CudaBuffer>> constants_;
  std::vector<std::unique_ptr<BoundOp>> ops_;
  std::vector<Stretch> stretches_;
  Observer* observer_;
  CudaBuffer host_counts_;  // pinned: the source of the copy at the start of each step
  CudaBuffer device_counts_;
  Counters counters_;
  PortsOnCard ports_;
};

}  // namespace ggml::cuda
