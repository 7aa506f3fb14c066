#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "ggml/reference.h"

namespace ggml {

/// For tests: a graph with its inputs, weights and outputs in one place, evaluated by the ReferenceExecutor.
///
///   Harness h(4);
///   TensorId x = h.input("x", Shape(8, 4), values);
///   TensorId y = h.builder().linear(x, h.slot(DType::q8_0, Shape(8, 3), weights), "y");
///   EXPECT_EQ(h.run({.n_tokens = 2}, y), ...);
///
/// The ports and weights may as well be given to another Executor.
class Harness {
 public:
  explicit Harness(int token_bucket, int output_bucket = 1) : builder_(token_bucket, output_bucket) {}

  [[nodiscard]] GraphBuilder& builder() { return builder_; }
  /// Ports with these contents. The rows are tokens unless said otherwise.
  TensorId input(std::string name, const Shape& shape, const std::vector<float>& values, Rows rows = Rows::tokens);
  TensorId ints(std::string name, const Shape& shape, const std::vector<std::int32_t>& values,
                Rows rows = Rows::tokens);
  /// A port of `bytes` zero bytes, as an i32 tensor.
  TensorId state(std::string name, std::size_t bytes);
  /// A weight with these values, encoded in `type`.
  TensorId weight(std::string name, DType type, const Shape& shape, const std::vector<float>& values);
  [[nodiscard]] Slot slot(DType type, const Shape& shape, const std::vector<float>& values);

  /// Evaluates the graph and returns the real rows of `result` (which gets a port).
  std::vector<float> run(const StepCounts& counts, TensorId result, const CompileOptions& options = {});
  /// The same for an i32 result.
  std::vector<std::int32_t> run_ints(const StepCounts& counts, TensorId result);

  [[nodiscard]] const std::vector<PortBinding>& ports() const { return ports_; }
  /// Bytes behind a port made by input(), ints() or state().
  [[nodiscard]] std::vector<std::byte>& bytes(TensorId port);

 private:
  TensorId add_port(std::string name, DType type, const Shape& shape, Rows rows, std::vector<std::byte> bytes);
  std::vector<std::byte> evaluate(const StepCounts& counts, TensorId result, const CompileOptions& options);

  GraphBuilder builder_;
  std::deque<std::vector<std::byte>> storage_;
  std::deque<Weight> weights_;
  std::vector<PortBinding> ports_;
  std::map<std::int32_t, std::size_t> storage_of_;  // tensor id -> index into storage_
};

}  // namespace ggml
