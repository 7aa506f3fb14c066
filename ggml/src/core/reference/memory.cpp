#include "memory.h"

#include <bit>
#include <cstring>

#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/quant.h"

namespace ggml::reference {

namespace {

// Views show bytes; activations keep one value per four bytes.
constexpr std::int64_t kValueBytes = 4;

const std::byte* host_data(const Weight& weight) {
  if (!weight.placements.empty() && weight.placements.front().data != nullptr &&
      weight.placements.front().kind != BufferKind::device)
    return weight.placements.front().data;
  throw Error(ErrorCode::unsupported, weight.name + ": the weight is not in host memory",
              "the reference evaluator reads weights of the CPU only");
}

}  // namespace

Memory::Memory(const Graph& graph, std::span<const PortBinding> ports)
    : graph_(graph), ports_(ports.begin(), ports.end()), values_(graph.tensors.size()) {
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    if (t.port.valid()) (void)binding(t);
    if (t.role == TensorRole::weight) (void)host_data(*t.weight);
    if (t.role == TensorRole::activation) values_[i].assign(static_cast<std::size_t>(t.shape.elements()), 0.0);
  }
}

const PortBinding& Memory::binding(const Tensor& tensor) const {
  for (const PortBinding& b : ports_) {
    if (b.port != tensor.port) continue;
    if (b.data != nullptr && b.bytes >= tensor_bytes(tensor.type, tensor.shape)) return b;
    throw Error(ErrorCode::invalid_argument, strf("%s: port %d has %zu bytes, %zu needed", tensor.name.c_str(),
                                                  tensor.port.v, b.bytes, tensor_bytes(tensor.type, tensor.shape)));
  }
  throw Error(ErrorCode::invalid_argument, strf("%s: port %d is not bound", tensor.name.c_str(), tensor.port.v));
}

TensorId Memory::base(TensorId id) const {
  return at(id).role == TensorRole::view ? at(id).base : id;
}

std::int64_t Memory::live(TensorId id) const {
  const Tensor& t = at(id);
  if (t.rows == Rows::fixed) return t.shape.elements();
  const bool tokens = t.rows == Rows::tokens;
  return t.shape.elements() / (tokens ? graph_.token_bucket : graph_.output_bucket) *
         (tokens ? counts_.n_tokens : counts_.n_outputs);
}

void Memory::decode(const Tensor& tensor, const std::byte* data, std::int64_t n, std::vector<double>& to) const {
  to.resize(static_cast<std::size_t>(n));
  if (tensor.type == DType::i32) {
    const auto* numbers = reinterpret_cast<const std::int32_t*>(data);
    for (std::int64_t i = 0; i < n; ++i) to[static_cast<std::size_t>(i)] = numbers[i];
    return;
  }
  const std::int64_t row = tensor.shape[0];
  std::vector<float> floats(static_cast<std::size_t>(row));
  for (std::int64_t first = 0; first < n; first += row) {
    dequantise_row_of(tensor.type, data, first / row, row, floats.data());
    for (std::int64_t i = 0; i < row; ++i)
      to[static_cast<std::size_t>(first + i)] = static_cast<double>(floats[static_cast<std::size_t>(i)]);
  }
}

const double* Memory::read(TensorId id) {
  const Tensor& t = at(id);
  const Tensor& of = at(base(id));
  auto& values = values_[static_cast<std::size_t>(id.v)];
  switch (of.role) {
    case TensorRole::activation:
      return values_[static_cast<std::size_t>(base(id).v)].data() + t.offset_bytes / kValueBytes;
    case TensorRole::weight:
      if (values.empty()) decode(t, host_data(*of.weight) + t.offset_bytes, t.shape.elements(), values);
      break;
    default:
      decode(t, static_cast<const std::byte*>(binding(of).data) + t.offset_bytes, live(id), values);
      break;
  }
  return values.data();
}

double* Memory::write(TensorId id) {
  const TensorId of = base(id);
  TANDEM_ASSERT(at(of).role == TensorRole::activation, "a node writes a weight or an input port");
  return values_[static_cast<std::size_t>(of.v)].data() + at(id).offset_bytes / kValueBytes;
}

std::byte* Memory::raw(TensorId id) const {
  return static_cast<std::byte*>(binding(at(base(id))).data) + at(id).offset_bytes;
}

void Memory::flush(TensorId id) {
  const Tensor& t = at(id);
  if (t.role != TensorRole::activation || !t.port.valid()) return;
  const std::vector<float> floats = to_float(id);
  std::memcpy(binding(t).data, floats.data(), floats.size() * sizeof(float));
}

std::vector<float> Memory::to_float(TensorId id) {
  const std::int64_t n = live(id);
  const double* values = read(id);
  std::vector<float> floats(static_cast<std::size_t>(n));
  const bool integers = at(id).type == DType::i32;
  for (std::int64_t i = 0; i < n; ++i)
    floats[static_cast<std::size_t>(i)] =
        integers ? std::bit_cast<float>(static_cast<std::int32_t>(values[i])) : static_cast<float>(values[i]);
  return floats;
}

}  // namespace ggml::reference
