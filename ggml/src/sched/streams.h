#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ggml/scheduler.h"

namespace ggml::sched {

/// A weight of host memory that a graph computes with on another device. There it has a place in staging memory for as
/// long as it is needed.
struct Stream {
  const Weight* source = nullptr;  // where it lies
  Weight there;                    // the same as the graph's nodes see it: on the device
  std::size_t offset = 0;          // in a half of the staging memory
  std::int64_t n_experts = 0;      // that can be sent one by one; 0: it is sent whole
  std::vector<TensorId> in;        // tensors of the graph
  TensorId ids;                    // of the experts that rows use; with n_experts
};

/// The streams of a graph, and the bytes of staging memory that they take in all. What `there` points to does not move.
struct Streams {
  std::vector<std::unique_ptr<Stream>> all;
  std::size_t bytes = 0;
  [[nodiscard]] bool empty() const { return all.empty(); }
};

/// Finds the weights of `graph` that `streaming` wants to have on its device and makes the graph's nodes read them
/// there. Only matrices of products and what belongs to them are moved, and only such that lie in host memory alone.
[[nodiscard]] Streams take_streams(Graph& graph, const Streaming& streaming, const Device& device);

/// Where the bytes of a weight lie in host memory; null: nowhere, or it is an outline without bytes.
[[nodiscard]] const std::byte* host_bytes(const Weight& weight);

}  // namespace ggml::sched
