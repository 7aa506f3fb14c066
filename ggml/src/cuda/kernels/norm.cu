#include "cuda/kernels/activations.h"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rounding.cuh"

// A norm whose row stays in registers, and which also leaves it rounded for the products that follow.
namespace ggml::cuda {
namespace {

constexpr int kMostWarps = 32;

/// A block per row; a warp has every blockDim / 32-th run of 256 values.
template <int kRuns>
__global__ void __launch_bounds__(kMostWarps* kWarp) norm_in_registers(const __grid_constant__ NormArgs a) {
  __shared__ float shared[kWarp];
  allow_next();
  const int stride = static_cast<int>(blockDim.x) * kLaneValues;
  const int first = static_cast<int>(threadIdx.x) * kLaneValues;
  float weight[kRuns][kLaneValues], v[kRuns][kLaneValues];
  if (a.weight != nullptr) {
#pragma unroll
    for (int r = 0; r < kRuns; ++r) load_values(a.weight, first + r * stride, a.n, weight[r]);
  }
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  if (row >= live(a.rows)) return;
  float total = 0, squares = 0;
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    const int at = first + r * stride;
    load_values(a.x + row * a.n, at, a.n, v[r]);
    if (a.residual != nullptr) {
      float other[kLaneValues];
      load_values(a.residual + row * a.n, at, a.n, other);
#pragma unroll
      for (int j = 0; j < kLaneValues; ++j) v[r][j] += other[j];
      store_values(a.sum + row * a.n, at, a.n, v[r]);
    }
#pragma unroll
    for (int j = 0; j < kLaneValues; ++j) total += v[r][j];
  }
  const float n = static_cast<float>(a.n);
  const float mean = a.kind == NormKind::layer ? block_sum(total, shared) / n : 0.0f;
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    if (first + r * stride >= a.n) continue;
#pragma unroll
    for (int j = 0; j < kLaneValues; ++j) squares += (v[r][j] - mean) * (v[r][j] - mean);
  }
  squares = block_sum(squares, shared);
  const float divisor = a.kind == NormKind::l2 ? fmaxf(sqrtf(squares), a.eps) : sqrtf(squares / n + a.eps);
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    const int at = first + r * stride;
    float bias[kLaneValues];
    if (a.bias != nullptr) load_values(a.bias, at, a.n, bias);
#pragma unroll
    for (int j = 0; j < kLaneValues; ++j) {
      float y = at < a.n ? (v[r][j] - mean) / divisor : 0.0f;
      if (a.weight != nullptr) y *= weight[r][j];
      if (a.bias != nullptr) y += bias[j];
      v[r][j] = y;
    }
    store_values(a.y + row * a.n, at, a.n, v[r]);
    for (const RoundedOutput& to : a.rounded) {
      if (to.act != ActType::f32) write_rounded(to.act, v[r], at, a.n, row, to.to);
    }
  }
}

}  // namespace

bool norm_fits_registers(int n, int heads) {
  return heads == 1 && n % kUnit == 0 && n >= kWarpValues && n <= 2 * kMostWarps * kWarpValues;
}

void launch_norm_in_registers(const NormArgs& args, cudaStream_t stream) {
  const int runs = (args.n + kWarpValues - 1) / kWarpValues;
  const int warps = runs <= kMostWarps ? runs : (runs + 1) / 2;
  launch(runs <= kMostWarps ? norm_in_registers<1> : norm_in_registers<2>, static_cast<unsigned>(args.rows.capacity),
         static_cast<unsigned>(warps * kWarp), 0, stream, args);
}

}  // namespace ggml::cuda
