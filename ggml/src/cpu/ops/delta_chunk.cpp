#include "cpu/ops/delta_chunk.h"

#include <algorithm>
#include <cstring>

namespace ggml::cpu {
namespace {

constexpr std::int64_t kTile = 64;  // rows that the kernels of attention take at a time

}  // namespace

std::int64_t DeltaChunk::scratch_floats(std::int64_t head_dim) noexcept {
  return kRows * (6 * head_dim + 2 * kRows);
}

DeltaChunk::DeltaChunk(const KernelTable& kernels, std::int64_t head_dim, float* scratch)
    : kernels_(kernels), d_(head_dim) {
  const auto take = [&](std::int64_t floats) {
    float* part = scratch;
    scratch += floats;
    return part;
  };
  keys_ = take(kRows * d_);
  queries_ = take(kRows * d_);
  added_ = take(kRows * d_);
  added_across_ = take(kRows * d_);
  seen_key_ = take(kRows * d_);
  seen_ = take(kRows * d_);
  of_keys_ = take(kRows * kRows);
  of_rows_ = take(kRows * kRows);
}

void DeltaChunk::add(const Row& row) noexcept {
  const auto at = static_cast<std::size_t>(n_);
  const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(d_);
  std::memcpy(keys_ + n_ * d_, row.k, bytes);
  std::memcpy(queries_ + n_ * d_, row.q, bytes);
  v_[at] = row.v;
  decay_[at] = row.decay;
  beta_[at] = row.beta;
  ++n_;
}

/// to[i][j] = rows_i . with_j
void DeltaChunk::multiply(const float* rows, std::int64_t n_rows, const float* with, std::int64_t n_with, float* to,
                          std::int64_t stride) const noexcept {
  for (std::int64_t first = 0; first < n_with; first += kTile) {
    QkArgs args;
    args.q = rows;
    args.q_stride = d_;
    args.n_q = static_cast<int>(n_rows);
    args.k.values = reinterpret_cast<const std::byte*>(with + first * d_);
    args.k.n_tokens = static_cast<int>(std::min(kTile, n_with - first));
    args.k.dim = static_cast<int>(d_);
    args.scores = to + first;
    args.scores_stride = stride;
    kernels_.kv[static_cast<std::size_t>(DType::f32)].qk(args);
  }
}

/// to[i] += sum over t of factors[i][t] * rows_t
void DeltaChunk::add_product(const float* factors, std::int64_t n_rows, const float* rows, float* to,
                             std::int64_t stride) const noexcept {
  PvArgs args;
  args.p = factors;
  args.p_stride = kRows;
  args.n_q = static_cast<int>(n_rows);
  args.v.values = reinterpret_cast<const std::byte*>(rows);
  args.v.n_tokens = static_cast<int>(n_);
  args.v.dim = static_cast<int>(d_);
  args.acc = to;
  args.acc_stride = stride;
  kernels_.kv[static_cast<std::size_t>(DType::f32)].pv(args);
}

/// Row after row: what each adds, and of its result what the state gives. `weights` and `decay` end as those of the
/// last row.
void DeltaChunk::solve(float* out, std::int64_t out_stride, std::array<float, kRows>& weights,
                       float& decay) const noexcept {
  const VecKernels& vec = kernels_.vec;
  for (std::int64_t t = 0; t < n_; ++t) {
    const auto at = static_cast<std::size_t>(t);
    decay *= decay_[at];
    vec.scale(weights.data(), decay_[at], t, weights.data());
    weights[at] = 1.0f;
    float* u = added_ + t * d_;
    vec.scale(v_[at], beta_[at], d_, u);
    vec.axpy(-beta_[at] * decay, seen_key_ + t * d_, d_, u);
    for (std::int64_t i = 0; i < t; ++i)
      vec.axpy(-beta_[at] * weights[static_cast<std::size_t>(i)] * of_keys_[t * kRows + i], added_ + i * d_, d_, u);
    float* row = of_rows_ + t * kRows;
    vec.mul(row, weights.data(), t + 1, row);
    std::fill(row + t + 1, row + n_, 0.0f);
    vec.scale(seen_ + t * d_, decay, d_, out + t * out_stride);
  }
}

void DeltaChunk::finish(float* state, float* out, std::int64_t out_stride) noexcept {
  multiply(keys_, n_, state, d_, seen_key_, d_);
  multiply(queries_, n_, state, d_, seen_, d_);
  multiply(keys_, n_, keys_, n_, of_keys_, kRows);
  multiply(queries_, n_, keys_, n_, of_rows_, kRows);
  std::array<float, kRows> weights{};
  float decay = 1.0f;
  solve(out, out_stride, weights, decay);
  add_product(of_rows_, n_, added_, out, out_stride);
  for (std::int64_t t = 0; t < n_; ++t)
    for (std::int64_t j = 0; j < d_; ++j)
      added_across_[j * kRows + t] = weights[static_cast<std::size_t>(t)] * added_[t * d_ + j];
  kernels_.vec.scale(state, decay, d_ * d_, state);
  add_product(added_across_, d_, keys_, state, d_);
  n_ = 0;
}

}  // namespace ggml::cpu
