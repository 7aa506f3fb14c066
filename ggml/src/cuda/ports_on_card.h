#pragma once

#include <span>
#include <vector>

#include "cuda/kernels/fetch.h"
#include "cuda/kernels/weights.h"
#include "cuda/resources.h"
#include "ggml/graph.h"

namespace ggml::cuda {

/// The small inputs of a step (ids, positions, tables) lie in host memory. Kernels that read them there wait for the
/// bus each time, so one launch at the start of the step copies them all. Likewise large results: products write single
/// values, of which the bus takes few at a time, so they are written on the card and copied.
class PortsOnCard {
 public:
  PortsOnCard() = default;
  /// Points the addresses of such inputs to their copies. `addresses`: per TensorId, null where unbound.
  PortsOnCard(const Graph& graph, int device, std::span<std::byte*> addresses);
  /// One more piece of host memory, to a place on the card.
  void add(const std::byte* from, std::byte* to, std::size_t bytes);
  void launch_fetch(cudaStream_t stream) const;
  /// Copies the results of the nodes [begin, end) that belong to the host. `counts`: on the card.
  void launch_results(std::size_t begin, std::size_t end, const DeviceCounts* counts, cudaStream_t stream) const;

 private:
  struct Result {
    std::size_t node;
    const std::byte* from;
    std::byte* to;
    std::int64_t row_words;
    Rows rows;
    int capacity;
  };
  std::unique_ptr<CudaBuffer> copies_;
  std::vector<FetchRange> ranges_;
  std::vector<Result> results_;
};

}  // namespace ggml::cuda
