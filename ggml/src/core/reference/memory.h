#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ggml/device.h"

namespace ggml::reference {

/// The values of a graph's tensors as doubles; i32 tensors too (exactly), bit patterns included.
class Memory {
 public:
  /// Checks that every port is bound and large enough and every weight in host memory. Borrows `graph`.
  Memory(const Graph& graph, std::span<const PortBinding> ports);

  void set_counts(const StepCounts& counts) { counts_ = counts; }
  [[nodiscard]] const StepCounts& counts() const { return counts_; }
  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const Tensor& at(TensorId id) const { return graph_.at(id); }

  /// Elements that belong to real rows.
  [[nodiscard]] std::int64_t live(TensorId id) const;
  /// The tensor's values; ports are read anew at each call, weights are decoded once. Valid until the next call with
  /// the same id.
  [[nodiscard]] const double* read(TensorId id);
  /// Where to write the values of an activation or of a view of one.
  [[nodiscard]] double* write(TensorId id);
  /// The bytes behind a port.
  [[nodiscard]] std::byte* raw(TensorId id) const;
  /// Copies a result with a port to the port, rounded to its type. Other tensors: nothing.
  void flush(TensorId id);
  /// The real rows as f32 (or, for i32 tensors, as i32 bit patterns).
  [[nodiscard]] std::vector<float> to_float(TensorId id);

  [[nodiscard]] TensorId base(TensorId id) const;

 private:
  [[nodiscard]] const PortBinding& binding(const Tensor& tensor) const;
  void decode(const Tensor& tensor, const std::byte* data, std::int64_t n, std::vector<double>& to) const;

  const Graph& graph_;
  std::vector<PortBinding> ports_;
  std::vector<std::vector<double>> values_;  // per tensor; views of activations have none
  StepCounts counts_;
};

}  // namespace ggml::reference
