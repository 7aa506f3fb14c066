#include "cuda/kernels/activations.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/activate.cuh"
#include "cuda/kernels/device.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rounding.cuh"
#include "cuda/kernels/turn.cuh"

// Kernels over activations. All are small next to the products; each row or element is read once.
namespace ggml::cuda {
namespace {

constexpr int kBlock = 256;

unsigned blocks_for(std::int64_t n) {
  return static_cast<unsigned>((n + kBlock - 1) / kBlock);
}

/// The warps of a launch take runs of 256 values, row by row.
struct Run {
  std::int64_t row;
  int at;  // of this lane's eight values

  explicit __device__ Run(int k) {
    const int per_row = (k + kWarpValues - 1) / kWarpValues;
    const std::int64_t run = (static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x) / kWarp;
    row = run / per_row;
    at = static_cast<int>(run % per_row) * kWarpValues + static_cast<int>(threadIdx.x) % kWarp * kLaneValues;
  }
};
unsigned blocks_for_runs(const RowCount& rows, std::int64_t k) {
  return blocks_for(rows.capacity * ((k + kWarpValues - 1) / kWarpValues) * kWarp);
}

__global__ void __launch_bounds__(kBlock) quantise_runs(ActType act, const QuantiseArgs a) {
  begin_kernel();
  const Run run(a.k);
  if (run.row >= live(a.rows)) return;
  float v[kLaneValues];
  load_values(a.x + run.row * a.k, run.at, a.k, v);
  write_rounded(act, v, run.at, a.k, run.row, a.to);
}

__global__ void __launch_bounds__(kBlock) gated_rounded(GatedParams p, const GatedArgs a, const RoundedOutput to) {
  begin_kernel();
  const int width = static_cast<int>(a.width);
  const Run run(width);
  if (run.row >= live(a.rows)) return;
  float v[kLaneValues], up[kLaneValues];
  load_values(a.gate + run.row * a.stride, run.at, width, v);
  load_values(a.up + run.row * a.stride, run.at, width, up);
#pragma unroll
  for (int j = 0; j < kLaneValues; ++j) v[j] = run.at < width ? gated_value(p, v[j], up[j]) : 0.0f;
  write_rounded(to.act, v, run.at, width, run.row, to.to);
}

/// A warp's 32 values with one scale.
__global__ void __launch_bounds__(kBlock) quantise_32(const QuantiseArgs a, bool half_sums) {
  begin_kernel();
  const std::int64_t unit = (static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (unit >= static_cast<std::int64_t>(live(a.rows)) * (a.k / kUnit)) return;
  const float x = a.x[unit * kUnit + lane];
  const float amax = warp_max(fabsf(x));
  const float d = __half2float(__float2half_rn(amax / 127.0f));
  const float inverse = amax > 0 ? 127.0f / amax : 0.0f;
  const float q = rintf(x * inverse);
  a.to.q[unit * kUnit + lane] = static_cast<std::int8_t>(q);
  float sum = q;
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);  // of 16 lanes
  const float other = __shfl_xor_sync(~0u, sum, 16);
  if (lane == 0) {
    a.to.d[unit] = d;
    if (half_sums) {  // the form keeps d * sum of the block as a half
      a.to.s[2 * unit] = __half2float(__float2half_rn((sum + other) * d));
      a.to.s[2 * unit + 1] = 0.0f;
    } else {
      a.to.s[2 * unit] = d * sum;
      a.to.s[2 * unit + 1] = d * other;
    }
  }
}

/// The value of greatest magnitude of a block of 256 threads; the first of equals.
__device__ float greatest(float x, unsigned long long* shared) {
  unsigned long long key = static_cast<unsigned long long>(__float_as_uint(fabsf(x))) << 32 |
                           static_cast<unsigned>(kBlock - 1 - static_cast<int>(threadIdx.x)) << 1 |
                           (signbit(x) ? 1u : 0u);
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) key = max(key, __shfl_xor_sync(~0u, key, offset));
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = key;
  __syncthreads();
  key = shared[0];
#pragma unroll
  for (int i = 1; i < kBlock / kWarp; ++i) key = max(key, shared[i]);
  const float magnitude = __uint_as_float(static_cast<unsigned>(key >> 32));
  return key & 1 ? -magnitude : magnitude;
}

/// The code of this thread's value and the scale of its block of 256 (rows may end with a shorter block).
__device__ float code_256(float x, float& d, unsigned long long* shared) {
  const float m = greatest(x, shared);
  if (m == 0.0f) {
    d = 0.0f;
    return 0.0f;
  }
  const float inverse = -127.0f / m;
  d = 1.0f / inverse;
  return fminf(127.0f, rintf(inverse * x));
}

__global__ void __launch_bounds__(kBlock) quantise_256(const QuantiseArgs a) {
  __shared__ unsigned long long shared[kBlock / kWarp];
  begin_kernel();
  const int per_row = (a.k + kBlock - 1) / kBlock;
  const int row = static_cast<int>(blockIdx.x) / per_row;
  if (row >= live(a.rows)) return;
  const int at = static_cast<int>(blockIdx.x) % per_row * kBlock + static_cast<int>(threadIdx.x);
  const std::int64_t i = static_cast<std::int64_t>(row) * a.k + at;
  const float x = at < a.k ? a.x[i] : 0.0f;
  float d;
  const float q = code_256(x, d, shared);
  float sum = q;
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (at >= a.k) return;
  a.to.q[i] = static_cast<std::int8_t>(q);
  if (threadIdx.x % 16 == 0) a.to.s[i / 16] = d * sum;
  if (threadIdx.x % kUnit == 0) a.to.d[i / kUnit] = d;
}

__global__ void __launch_bounds__(kBlock) round_256(const float* x, float* y, int k, RowCount rows) {
  __shared__ unsigned long long shared[kBlock / kWarp];
  begin_kernel();
  const int per_row = (k + kBlock - 1) / kBlock;
  const int row = static_cast<int>(blockIdx.x) / per_row;
  if (row >= live(rows)) return;
  const int at = static_cast<int>(blockIdx.x) % per_row * kBlock + static_cast<int>(threadIdx.x);
  const std::int64_t i = static_cast<std::int64_t>(row) * k + at;
  float d;
  const float q = code_256(at < k ? x[i] : 0.0f, d, shared);
  if (at < k) y[i] = d * q;
}

__global__ void __launch_bounds__(kBlock) round_32(const float* x, float* y, int k, RowCount rows) {
  begin_kernel();
  const int per_row = (k + kUnit - 1) / kUnit;
  const std::int64_t unit = (static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x) / kWarp;
  const std::int64_t row = unit / per_row;
  if (row >= live(rows)) return;
  const int at = static_cast<int>(unit % per_row) * kUnit + static_cast<int>(threadIdx.x) % kWarp;
  const float v = at < k ? x[row * k + at] : 0.0f;
  const float amax = warp_max(fabsf(v));
  const float d = __half2float(__float2half_rn(amax / 127.0f));
  if (at < k) y[row * k + at] = d * rintf(v * (amax > 0 ? 127.0f / amax : 0.0f));
}

template <class T>
__global__ void __launch_bounds__(kBlock) round_each(const float* x, float* y, int k, RowCount rows) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i < static_cast<std::int64_t>(live(rows)) * k) y[i] = static_cast<float>(static_cast<T>(x[i]));
}

/// A block per row.
__global__ void __launch_bounds__(kBlock) norm_rows(const NormArgs a) {
  __shared__ float shared[kWarp];
  begin_kernel();
  const std::int64_t row = blockIdx.x;
  if (row >= live(a.rows)) return;
  const float* x = a.x + row * a.n;
  float total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < a.n; i += kBlock) {
    float v = x[i];
    if (a.residual != nullptr) {
      v += a.residual[row * a.n + i];
      a.sum[row * a.n + i] = v;
    }
    total += v;
  }
  const float* s = a.residual != nullptr ? a.sum + row * a.n : x;  // each thread reads back what it wrote itself
  const float n = static_cast<float>(a.n);
  const float mean = a.kind == NormKind::layer ? block_sum(total, shared) / n : 0.0f;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < a.n; i += kBlock) squares += (s[i] - mean) * (s[i] - mean);
  squares = block_sum(squares, shared);
  const float divisor = a.kind == NormKind::l2 ? fmaxf(sqrtf(squares), a.eps) : sqrtf(squares / n + a.eps);
  const float* weight = a.weight == nullptr ? nullptr : a.weight + (a.heads > 1 ? row % a.heads * a.n : 0);
  const float* bias = a.bias == nullptr ? nullptr : a.bias + (a.heads > 1 ? row % a.heads * a.n : 0);
  for (int i = static_cast<int>(threadIdx.x); i < a.n; i += kBlock) {
    float v = (s[i] - mean) / divisor;
    if (weight != nullptr) v *= weight[i];
    if (bias != nullptr) v += bias[i];
    a.y[row * a.n + i] = v;
  }
}

constexpr int kShortRow = 256;

/// A warp per row.
__global__ void __launch_bounds__(kBlock) norm_short_rows(const NormArgs a) {
  constexpr int kEach = kShortRow / kWarp;
  begin_kernel();
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= live(a.rows)) return;
  float v[kEach], total = 0, squares = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int i = lane + j * kWarp;
    v[j] = i < a.n ? a.x[row * a.n + i] : 0.0f;
    total += v[j];
  }
  const float n = static_cast<float>(a.n);
  const float mean = a.kind == NormKind::layer ? warp_sum(total) / n : 0.0f;
#pragma unroll
  for (int j = 0; j < kEach; ++j) squares += lane + j * kWarp < a.n ? (v[j] - mean) * (v[j] - mean) : 0.0f;
  squares = warp_sum(squares);
  const float divisor = a.kind == NormKind::l2 ? fmaxf(sqrtf(squares), a.eps) : sqrtf(squares / n + a.eps);
  const int first = a.heads > 1 ? static_cast<int>(row % a.heads) * a.n : 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int i = lane + j * kWarp;
    if (i >= a.n) continue;
    float y = (v[j] - mean) / divisor;
    if (a.weight != nullptr) y *= a.weight[first + i];
    if (a.bias != nullptr) y += a.bias[first + i];
    a.y[row * a.n + i] = y;
  }
}

template <BinaryKind kKind>
__global__ void __launch_bounds__(kBlock) binary(const BinaryArgs a) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= live(a.rows) * a.row) return;
  std::int64_t rest = i, at_a = 0, at_b = 0;
#pragma unroll
  for (int axis = 0; axis < 4; ++axis) {
    const std::int64_t k = rest % a.shape[axis];
    rest /= a.shape[axis];
    at_a += k * a.a_stride[axis];
    at_b += k * a.b_stride[axis];
  }
  a.y[i] = kKind == BinaryKind::add ? a.a[at_a] + a.b[at_b] : a.a[at_a] * a.b[at_b];
}

__global__ void __launch_bounds__(kBlock)
    unary(UnaryParams p, const float* x, float* y, std::int64_t width, RowCount rows) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= live(rows) * width) return;
  const float v = x[i];
  switch (p.kind) {
    case UnaryKind::scale:
      y[i] = p.a * v;
      break;
    case UnaryKind::softcap:
      y[i] = p.a * tanhf(v / p.a);
      break;
    case UnaryKind::clamp:
      y[i] = fminf(fmaxf(v, -p.a), p.a);
      break;
    case UnaryKind::activation:
      y[i] = activate(p.act, v);
      break;
    case UnaryKind::sqrt:
      y[i] = sqrtf(v);
      break;
  }
}

__global__ void __launch_bounds__(kBlock) gated(GatedParams p, const GatedArgs a) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= live(a.rows) * a.width) return;
  const std::int64_t at = i / a.width * a.stride + i % a.width;
  a.y[i] = gated_value(p, a.gate[at], a.up[at]);
}

__global__ void __launch_bounds__(kBlock)
    copy_words(const std::uint32_t* x, std::uint32_t* y, std::int64_t per_row, RowCount rows) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i < live(rows) * per_row) y[i] = x[i];
}

__global__ void __launch_bounds__(kBlock)
    put_result(const float* x, float* const* y, std::int64_t per_row, RowCount rows, int* nan) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= live(rows) * per_row) return;
  const float v = x[i];
  (*y)[i] = v;
  if (v != v) *nan = 1;
}

/// A block per token: its angles once, then all heads.
__global__ void __launch_bounds__(kBlock) rotate(const RotateArgs a) {
  extern __shared__ float2 angles[];
  begin_kernel();
  const std::int64_t token = blockIdx.x;
  if (token >= live(a.tokens)) return;
  const int pairs = a.n_rot / 2;
  for (int p = static_cast<int>(threadIdx.x); p < pairs; p += kBlock) {
    angles[p] = turn_of(a, a.positions[token], p);
  }
  __syncthreads();
  const std::int64_t base = token * a.heads * a.d;
  const int half = a.d / 2 + a.d % 2;
  for (int work = static_cast<int>(threadIdx.x); work < a.heads * half; work += kBlock) {
    const int head = work / half, p = work % half;
    const float* x = a.x + base + static_cast<std::int64_t>(head) * a.d;
    float* y = a.y + base + static_cast<std::int64_t>(head) * a.d;
    if (p < pairs) {
      const int first = a.first + (a.adjacent ? 2 * p : p), second = a.first + (a.adjacent ? 2 * p + 1 : p + pairs);
      const float u = x[first], v = x[second];
      y[first] = u * angles[p].x - v * angles[p].y;
      y[second] = u * angles[p].y + v * angles[p].x;
    } else {  // the rest of the head passes unchanged
      for (int i = 2 * (p - pairs); i < 2 * (p - pairs) + 2 && i < a.d - a.n_rot; ++i) {
        const int at = i < a.first ? i : i + a.n_rot;
        y[at] = x[at];
      }
    }
  }
}

bool is_aligned(const float* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

}  // namespace

void launch_quantise(ActType act, const QuantiseArgs& args, cudaStream_t stream) {
  if (is_aligned(args.x) && args.k % kUnit == 0) {
    return launch(quantise_runs, blocks_for_runs(args.rows, args.k), kBlock, 0, stream, act, args);
  }
  const std::int64_t n = static_cast<std::int64_t>(args.rows.capacity) * args.k;
  if (act == ActType::q8_k) {
    const auto blocks = static_cast<unsigned>(args.rows.capacity * ((args.k + kBlock - 1) / kBlock));
    launch(quantise_256, blocks, kBlock, 0, stream, args);
  } else {
    launch(quantise_32, blocks_for(n), kBlock, 0, stream, args, act == ActType::q8_1);
  }
}

void launch_round(ActType act, const float* x, float* y, int k, const RowCount& rows, cudaStream_t stream) {
  const std::int64_t n = static_cast<std::int64_t>(rows.capacity) * k;
  switch (act) {
    case ActType::f32:
      return launch(round_each<float>, blocks_for(n), kBlock, 0, stream, x, y, k, rows);
    case ActType::f16:
      return launch(round_each<__half>, blocks_for(n), kBlock, 0, stream, x, y, k, rows);
    case ActType::bf16:
      return launch(round_each<__nv_bfloat16>, blocks_for(n), kBlock, 0, stream, x, y, k, rows);
    case ActType::q8_k:
      return launch(round_256, static_cast<unsigned>(rows.capacity * ((k + kBlock - 1) / kBlock)), kBlock, 0, stream, x,
                    y, k, rows);
    case ActType::q8_0:
    case ActType::q8_1:
      return launch(round_32, blocks_for(static_cast<std::int64_t>(rows.capacity) * ((k + kUnit - 1) / kUnit) * kUnit),
                    kBlock, 0, stream, x, y, k, rows);
  }
}

void launch_norm(const NormArgs& args, cudaStream_t stream) {
  if (norm_fits_registers(args.n, args.heads) && is_aligned(args.x) && is_aligned(args.y) &&
      is_aligned(args.residual)) {
    return launch_norm_in_registers(args, stream);
  }
  if (args.n <= kShortRow && args.residual == nullptr) {
    return launch(norm_short_rows, blocks_for(std::int64_t{args.rows.capacity} * kWarp), kBlock, 0, stream, args);
  }
  launch(norm_rows, static_cast<unsigned>(args.rows.capacity), kBlock, 0, stream, args);
}

void launch_binary(BinaryKind kind, const BinaryArgs& args, cudaStream_t stream) {
  launch(kind == BinaryKind::add ? binary<BinaryKind::add> : binary<BinaryKind::mul>,
         blocks_for(args.rows.capacity * args.row), kBlock, 0, stream, args);
}

void launch_unary(const UnaryParams& params, const float* x, float* y, std::int64_t width, const RowCount& rows,
                  cudaStream_t stream) {
  launch(unary, blocks_for(rows.capacity * width), kBlock, 0, stream, params, x, y, width, rows);
}

void launch_gated(const GatedParams& params, const GatedArgs& args, cudaStream_t stream) {
  launch(gated, blocks_for(args.rows.capacity * args.width), kBlock, 0, stream, params, args);
}

void launch_gated_rounded(const GatedParams& params, const GatedArgs& args, const RoundedOutput& to,
                          cudaStream_t stream) {
  launch(gated_rounded, blocks_for_runs(args.rows, args.width), kBlock, 0, stream, params, args, to);
}

void launch_clamp(float bound, float* x, std::int64_t width, const RowCount& rows, cudaStream_t stream) {
  launch_unary({UnaryKind::clamp, Activation::none, bound}, x, x, width, rows, stream);
}

void launch_copy(const void* x, void* y, std::int64_t words_per_row, const RowCount& rows, cudaStream_t stream) {
  launch(copy_words, blocks_for(rows.capacity * words_per_row), kBlock, 0, stream, static_cast<const std::uint32_t*>(x),
         static_cast<std::uint32_t*>(y), words_per_row, rows);
}

void launch_put_result(const float* x, float* const* y, std::int64_t per_row, const RowCount& rows, int* nan,
                       cudaStream_t stream) {
  launch(put_result, blocks_for(rows.capacity * per_row), kBlock, 0, stream, x, y, per_row, rows, nan);
}

void launch_rotate(const RotateArgs& args, cudaStream_t stream) {
  launch(rotate, static_cast<unsigned>(args.tokens.capacity), kBlock,
         static_cast<std::size_t>(args.n_rot / 2) * sizeof(float2), stream, args);
}

}  // namespace ggml::cuda
