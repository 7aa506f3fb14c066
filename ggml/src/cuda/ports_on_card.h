#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuda/kernels/fetch.h"
#include "cuda/kernels/weights.h"
#include "cuda/resources.h"
#include "ggml/graph.h"

namespace ggml::cuda {

/// The small inputs of a step (ids, positions, tables) lie in host memory. Kernels that read them there wait for the
/// bus each time, so one launch at the start of the step copies them all. Likewise large results: products write single
/// values, of which the bus takes few at a time, so they are written on the card and copied. On their way they are
/// looked at for values that are no numbers.
class PortsOnCard {
 public:
  PortsOnCard() = default;
  /// Points the addresses of such inputs to their copies. `addresses`: per TensorId, null where unbound.
  PortsOnCard(const Graph& graph, int device, std::span<std::byte*> addresses);
  /// One more piece of host memory, to a place on the card.
  void add(const std::byte* from, std::byte* to, std::size_t bytes);
  void launch_fetch(cudaStream_t stream) const;
  /// HostResults.
  [[nodiscard]] bool send_result(PortId port, std::byte* to);
  [[nodiscard]] std::optional<bool> gave_nan() const;
  /// Before each run, when the one before is done.
  void begin_run();
  /// Copies the results of the nodes [begin, end) that belong to the host. `counts`: on the card.
  void launch_results(std::size_t begin, std::size_t end, const DeviceCounts* counts, cudaStream_t stream) const;

 private:
  struct Result {
    std::size_t node;
    PortId port;
    const std::byte* from;
    std::byte* to;
    std::int64_t row_words;
    Rows rows;
    int capacity;
  };
  std::unique_ptr<CudaBuffer> copies_;
  std::unique_ptr<CudaBuffer> targets_;          // host memory: where each result goes in this run
  std::unique_ptr<CudaBuffer> targets_on_card_;  // a copy of it
  std::unique_ptr<CudaBuffer> nan_;              // host memory: an int that a result which is no number sets
  std::vector<std::byte*> next_targets_;         // of the next run
  std::vector<FetchRange> ranges_;
  std::vector<Result> results_;
};

}  // namespace ggml::cuda
