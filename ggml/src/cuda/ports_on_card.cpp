#include "cuda/ports_on_card.h"

#include <cstring>

#include "core/graph_walk.h"
#include "cuda/kernels/activations.h"
#include "ggml/error.h"

namespace ggml::cuda {
namespace {

constexpr std::size_t kMostBytes = 64 * 1024;  // of one input: beyond, reading in place costs less than a copy
constexpr std::size_t kLeastResult = 32 * 1024;
constexpr std::size_t kAlign = 256;

bool is_host_memory(const std::byte* p) {
  cudaPointerAttributes attributes{};
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, p));
  return attributes.type == cudaMemoryTypeHost;
}

/// Ports of integers that the graph's kernels read and nobody in it writes.
std::vector<bool> read_only_inputs(const Graph& graph) {
  std::vector<bool> inputs(graph.tensors.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.op == Op::sample || node.op == Op::pick) continue;  // the host reads these where they are
    for_each_read(node, [&](TensorId id) { inputs[index(base_of(graph, id))] = true; });
  }
  const auto leave_out = [&](TensorId id) {
    if (id.valid()) inputs[index(base_of(graph, id))] = false;
  };
  for (const Node& node : graph.nodes) {
    leave_out(state_of(node));
    for (const TensorId id : node.dst) leave_out(id);
    if (node.op == Op::sample || node.op == Op::pick) for_each_read(node, leave_out);
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    if (t.role != TensorRole::port || t.type != DType::i32 || tensor_bytes(t.type, t.shape) > kMostBytes)
      inputs[i] = false;
  }
  return inputs;
}

bool runs_on_host(const Node& node) {
  return node.op == Op::sample || node.op == Op::pick;
}

/// The node that writes each large result of rows of floats, where nothing else touches its port; SIZE_MAX else.
std::vector<std::size_t> writers_of_results(const Graph& graph) {
  std::vector<std::size_t> writers(graph.tensors.size(), SIZE_MAX);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const TensorId id : graph.nodes[n].dst) {
      std::size_t& writer = writers[index(base_of(graph, id))];
      writer = writer == SIZE_MAX && !runs_on_host(graph.nodes[n]) ? n : SIZE_MAX;
    }
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    const bool large = t.role == TensorRole::activation && t.port.valid() && t.type == DType::f32 && !t.observed &&
                       tensor_bytes(t.type, t.shape) >= kLeastResult;
    if (!large) writers[i] = SIZE_MAX;
  }
  return writers;
}

}  // namespace

PortsOnCard::PortsOnCard(const Graph& graph, int device, std::span<std::byte*> addresses) {
  const std::vector<bool> inputs = read_only_inputs(graph);
  std::size_t total = 0;
  std::vector<std::pair<std::size_t, std::size_t>> places;  // tensor, offset of its copy
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i] || addresses[i] == nullptr || !is_host_memory(addresses[i])) continue;
    places.emplace_back(i, total);
    total += (tensor_bytes(graph.tensors[i].type, graph.tensors[i].shape) + kAlign - 1) / kAlign * kAlign;
  }
  const std::size_t n_inputs = places.size();
  const std::vector<std::size_t> writers = writers_of_results(graph);
  for (std::size_t i = 0; i < writers.size(); ++i) {
    if (writers[i] == SIZE_MAX || addresses[i] == nullptr || !is_host_memory(addresses[i])) continue;
    places.emplace_back(i, total);
    total += (tensor_bytes(graph.tensors[i].type, graph.tensors[i].shape) + kAlign - 1) / kAlign * kAlign;
  }
  if (total == 0) return;
  copies_ = std::make_unique<CudaBuffer>(device, total, BufferKind::device);
  for (std::size_t p = 0; p < places.size(); ++p) {
    const auto& [i, offset] = places[p];
    const Tensor& t = graph.tensors[i];
    std::byte* copy = copies_->data() + offset;
    if (p < n_inputs) {
      add(addresses[i], copy, tensor_bytes(t.type, t.shape));
    } else {
      const int capacity = t.rows == Rows::tokens    ? graph.token_bucket
                           : t.rows == Rows::outputs ? graph.output_bucket
                                                     : 1;
      results_.push_back({writers[i], t.port, copy, addresses[i], t.shape.elements() / capacity, t.rows, capacity});
    }
    addresses[i] = copy;
  }
  if (results_.empty()) return;
  const std::size_t bytes = results_.size() * sizeof(std::byte*);
  targets_ = std::make_unique<CudaBuffer>(device, bytes, BufferKind::host_pinned);
  targets_on_card_ = std::make_unique<CudaBuffer>(device, bytes, BufferKind::device);
  nan_ = std::make_unique<CudaBuffer>(device, sizeof(int), BufferKind::host_pinned);
  for (const Result& r : results_) next_targets_.push_back(r.to);
  add(targets_->data(), targets_on_card_->data(), bytes);
  begin_run();
}

bool PortsOnCard::send_result(PortId port, std::byte* to) {
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (results_[i].port != port) continue;
    next_targets_[i] = to;
    return true;
  }
  return false;
}

std::optional<bool> PortsOnCard::gave_nan() const {
  if (nan_ == nullptr) return std::nullopt;
  return *reinterpret_cast<const int*>(nan_->data()) != 0;
}

void PortsOnCard::begin_run() {
  if (nan_ == nullptr) return;
  *reinterpret_cast<int*>(nan_->data()) = 0;
  std::memcpy(targets_->data(), next_targets_.data(), next_targets_.size() * sizeof(std::byte*));
  for (std::size_t i = 0; i < results_.size(); ++i) next_targets_[i] = results_[i].to;
}

void PortsOnCard::add(const std::byte* from, std::byte* to, std::size_t bytes) {
  TANDEM_ASSERT(bytes % sizeof(std::uint32_t) == 0, "inputs are words");
  ranges_.push_back({reinterpret_cast<const std::uint32_t*>(from), reinterpret_cast<std::uint32_t*>(to),
                     static_cast<int>(bytes / sizeof(std::uint32_t))});
}

void PortsOnCard::launch_results(std::size_t begin, std::size_t end, const DeviceCounts* counts,
                                 cudaStream_t stream) const {
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const Result& r = results_[i];
    if (r.node < begin || r.node >= end) continue;
    RowCount rows{nullptr, r.capacity, r.capacity};
    if (r.capacity > 1) rows = {r.rows == Rows::tokens ? &counts->n_tokens : &counts->n_outputs, 1, r.capacity};
    const auto* to = reinterpret_cast<float* const*>(targets_on_card_->data()) + i;
    launch_put_result(reinterpret_cast<const float*>(r.from), to, r.row_words, rows,
                      reinterpret_cast<int*>(nan_->data()), stream);
  }
}

void PortsOnCard::launch_fetch(cudaStream_t stream) const {
  for (std::size_t begin = 0; begin < ranges_.size(); begin += kMaxFetchRanges) {
    FetchRanges some;
    for (std::size_t i = begin; i < ranges_.size() && some.n < static_cast<int>(kMaxFetchRanges); ++i)
      some.range[some.n++] = ranges_[i];
    cuda::launch_fetch(some, stream);
  }
}

}  // namespace ggml::cuda
