#include "cuda/bound_op.h"

#include <algorithm>

#include "cuda/planes.h"

namespace ggml::cuda {

Rows BindContext::rows_of(TensorId id) const {
  const Tensor& t = graph_.at(id);
  return t.rows == Rows::fixed && t.role == TensorRole::view ? graph_.at(t.base).rows : t.rows;
}

int* Counters::take(std::size_t n) {
  constexpr std::size_t kBytes = 64 * 1024;
  constexpr std::size_t kAlign = 64;
  const std::size_t bytes = (n * sizeof(int) + kAlign - 1) / kAlign * kAlign;
  if (buffers_.empty() || used_ + bytes > buffers_.back()->bytes()) {
    buffers_.push_back(std::make_unique<CudaBuffer>(device_, std::max(kBytes, bytes), BufferKind::device));
    CUDA_CHECK(cudaMemset(buffers_.back()->data(), 0, buffers_.back()->bytes()));
    CUDA_CHECK(cudaStreamSynchronize(nullptr));
    used_ = 0;
  }
  int* counters = reinterpret_cast<int*>(buffers_.back()->data() + used_);
  used_ += bytes;
  return counters;
}

std::vector<RoundedTensor> BindContext::rounded_forms(TensorId values) const {
  std::vector<RoundedTensor> forms;
  for (const RoundedTensor& r : in_.rounded) {
    if (r.values == values) forms.push_back(r);
  }
  return forms;
}

std::byte* BindContext::pinned(std::size_t bytes) const {
  in_.constants->push_back(std::make_unique<CudaBuffer>(in_.device, bytes, BufferKind::host_pinned));
  return in_.constants->back()->data();
}

RowCount BindContext::rows(TensorId id, std::int64_t width) const {
  const Tensor& t = graph_.at(id);
  const Rows rows = rows_of(id);
  const auto total = static_cast<int>(t.shape.elements() / width);
  const int bucket = rows == Rows::tokens ? graph_.token_bucket : rows == Rows::outputs ? graph_.output_bucket : 1;
  // A capacity of one is always full: no count to read.
  if (rows == Rows::fixed || bucket == 1 || in_.counts == nullptr) return {nullptr, total, total};
  return {rows == Rows::tokens ? &in_.counts->n_tokens : &in_.counts->n_outputs, total / bucket, total};
}

PlanarWeight BindContext::weight(TensorId id) const {
  const Tensor& t = graph_.at(id);
  const Tensor& base = t.role == TensorRole::view ? graph_.at(t.base) : t;
  const Shape& whole = base.shape;
  PlanarWeight w;
  w.k = static_cast<int>(t.shape[0]);
  w.n = t.shape[1];
  w.rows_per_matrix = whole[1];
  w.first = t.role == TensorRole::view ? t.offset_bytes / static_cast<std::int64_t>(row_bytes(base.type, whole[0])) : 0;
  const auto* planes = data<const std::uint8_t>(t.role == TensorRole::view ? t.base : id);
  if (planes == nullptr) return w;
  const PlaneOffsets o = plane_offsets(base.type, whole);
  w.codes = planes + o.codes;
  w.high = planes + o.high;
  w.scales = planes + o.scales;
  w.supers = planes + o.supers;
  return w;
}

const void* BindContext::upload(const void* data, std::size_t bytes) const {
  if (in_.constants == nullptr) return nullptr;
  auto buffer = std::make_unique<CudaBuffer>(in_.device, bytes, BufferKind::device);
  CUDA_CHECK(cudaMemcpy(buffer->data(), data, bytes, cudaMemcpyHostToDevice));
  in_.constants->push_back(std::move(buffer));
  return in_.constants->back()->data();
}

}  // namespace ggml::cuda
