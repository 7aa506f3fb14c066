#include "harness.h"

#include <cstring>

#include "ggml/error.h"
#include "ggml/quant.h"

namespace ggml {

namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values, std::size_t at_least) {
  std::vector<std::byte> bytes(std::max(values.size() * sizeof(T), at_least));
  std::memcpy(bytes.data(), values.data(), values.size() * sizeof(T));
  return bytes;
}

template <class T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

TensorId Harness::add_port(std::string name, DType type, const Shape& shape, Rows rows, std::vector<std::byte> bytes) {
  storage_.push_back(std::move(bytes));
  const PortId port(static_cast<std::int32_t>(ports_.size()));
  ports_.push_back({port, storage_.back().data(), storage_.back().size()});
  const TensorId id = builder_.port(port, std::move(name), type, shape, rows);
  storage_of_[id.v] = storage_.size() - 1;
  return id;
}

TensorId Harness::input(std::string name, const Shape& shape, const std::vector<float>& values, Rows rows) {
  return add_port(std::move(name), DType::f32, shape, rows, bytes_of(values, tensor_bytes(DType::f32, shape)));
}

TensorId Harness::ints(std::string name, const Shape& shape, const std::vector<std::int32_t>& values, Rows rows) {
  return add_port(std::move(name), DType::i32, shape, rows, bytes_of(values, tensor_bytes(DType::i32, shape)));
}

TensorId Harness::state(std::string name, std::size_t bytes) {
  const Shape shape(static_cast<std::int64_t>(bytes / sizeof(std::int32_t)));
  return add_port(std::move(name), DType::i32, shape, Rows::fixed, std::vector<std::byte>(bytes));
}

TensorId Harness::weight(std::string name, DType type, const Shape& shape, const std::vector<float>& values) {
  TANDEM_ASSERT(static_cast<std::int64_t>(values.size()) == shape.elements(), "a test weight has too few values");
  storage_.emplace_back(tensor_bytes(type, shape));
  quantise_rows(type, values, shape[0], {}, storage_.back().data());
  Placement placement;
  placement.data = storage_.back().data();
  weights_.push_back({std::move(name), type, shape, {placement}});
  return builder_.weight(weights_.back());
}

Slot Harness::slot(DType type, const Shape& shape, const std::vector<float>& values) {
  Slot slot;
  slot.weight = weight("weight." + std::to_string(weights_.size()), type, shape, values);
  return slot;
}

std::vector<std::byte>& Harness::bytes(TensorId port) {
  return storage_[storage_of_.at(port.v)];
}

std::vector<std::byte> Harness::evaluate(const StepCounts& counts, TensorId result, const CompileOptions& options) {
  const Tensor tensor = builder_.graph().at(result);
  const PortId port(static_cast<std::int32_t>(ports_.size()));
  storage_.emplace_back(tensor_bytes(tensor.type, tensor.shape));
  ports_.push_back({port, storage_.back().data(), storage_.back().size()});
  builder_.output(result, port);
  ReferenceExecutor executor;
  executor.run(*executor.compile(builder_.graph(), ports_, options), counts, {});
  const std::int64_t capacity = tensor.rows == Rows::tokens    ? builder_.graph().token_bucket
                                : tensor.rows == Rows::outputs ? builder_.graph().output_bucket
                                                               : 1;
  const std::int64_t real = tensor.rows == Rows::tokens    ? counts.n_tokens
                            : tensor.rows == Rows::outputs ? counts.n_outputs
                                                           : 1;
  std::vector<std::byte> bytes = storage_.back();
  bytes.resize(bytes.size() / static_cast<std::size_t>(capacity) * static_cast<std::size_t>(real));
  return bytes;
}

std::vector<float> Harness::run(const StepCounts& counts, TensorId result, const CompileOptions& options) {
  return values_of<float>(evaluate(counts, result, options));
}

std::vector<std::int32_t> Harness::run_ints(const StepCounts& counts, TensorId result) {
  return values_of<std::int32_t>(evaluate(counts, result, {}));
}

}  // namespace ggml
