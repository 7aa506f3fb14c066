#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "cuda/kernels/device.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/products.h"
#include "cuda/kernels/vector_product.cuh"

// Products with float weights (F32, F16, BF16), summed in f32. Activations come rounded to the weight's type.
namespace ggml::cuda {
namespace {

__device__ __forceinline__ float to_float(float v) {
  return v;
}
__device__ __forceinline__ float to_float(__half v) {
  return __half2float(v);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 v) {
  return __bfloat162float(v);
}

/// A warp per weight row; 16 bytes of weights per lane where rows are aligned to that.
template <class T, bool kWide>
__global__ void __launch_bounds__(kVectorThreads) float_vector_product(const __grid_constant__ ProductArgs a) {
  begin_kernel();
  const std::int64_t n = (static_cast<std::int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = static_cast<int>(blockIdx.y);
  if (row >= live(a.rows) || n >= a.w.n) return;
  const RowChoice choice = choose_row(a, row, n);
  float sum = 0;
  if (!choice.zero) {
    const T* w = reinterpret_cast<const T*>(a.w.codes) + choice.weight_row * a.w.k;
    const float* x = a.x_float + static_cast<std::int64_t>(choice.x_row) * a.w.k;
    if constexpr (kWide) {
      constexpr int kPer = 16 / sizeof(T);
      for (int i = lane * kPer; i < a.w.k; i += kWarp * kPer) {
        const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(w + i));
        const T* v = reinterpret_cast<const T*>(&bits);
#pragma unroll
        for (int j = 0; j < kPer; ++j) sum += to_float(v[j]) * x[i + j];
      }
    } else {
      for (int i = lane; i < a.w.k; i += kWarp) sum += to_float(w[i]) * x[i];
    }
  }
  sum = warp_sum(sum);
  if (lane == 0) {
    a.y[static_cast<std::int64_t>(row) * a.y_stride + n] = choice.zero ? 0.0f : finish(a, sum, n, choice.expert);
  }
}

constexpr int kSide = 64, kDepth = 16, kMicro = 4;

/// 64 x 64 results per block of 256 threads, each 4 x 4.
template <class T>
__global__ void __launch_bounds__(256) float_tile_product(const __grid_constant__ ProductArgs a) {
  __shared__ float w[kDepth][kSide + 1], x[kDepth][kSide + 1];
  begin_kernel();
  const int rows = live(a.rows);
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.x) * kSide;
  const int m0 = static_cast<int>(blockIdx.y) * kSide;
  if (m0 >= rows) return;
  const int tn = static_cast<int>(threadIdx.x) % 16 * kMicro, tm = static_cast<int>(threadIdx.x) / 16 * kMicro;
  const T* weights = reinterpret_cast<const T*>(a.w.codes) + a.w.first * a.w.k;
  float acc[kMicro][kMicro] = {};
  for (int k0 = 0; k0 < a.w.k; k0 += kDepth) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSide * kDepth; i += 256) {
      const int d = i % kDepth, r = i / kDepth;
      const bool inside = k0 + d < a.w.k;
      w[d][r] = inside && n0 + r < a.w.n ? to_float(weights[(n0 + r) * a.w.k + k0 + d]) : 0.0f;
      x[d][r] = inside && m0 + r < rows ? a.x_float[static_cast<std::int64_t>(m0 + r) * a.w.k + k0 + d] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
#pragma unroll
      for (int i = 0; i < kMicro; ++i) {
#pragma unroll
        for (int j = 0; j < kMicro; ++j) acc[i][j] += x[d][tm + i] * w[d][tn + j];
      }
    }
  }
  for (int i = 0; i < kMicro; ++i) {
    for (int j = 0; j < kMicro; ++j) {
      const std::int64_t n = n0 + tn + j;
      if (m0 + tm + i < rows && n < a.w.n) {
        a.y[static_cast<std::int64_t>(m0 + tm + i) * a.y_stride + n] = finish(a, acc[i][j], n, 0);
      }
    }
  }
}

constexpr int kFewSide = 32, kFewGroups = 8, kFewThreads = 64 * kFewGroups, kFewDepth = 16 * kFewGroups;
constexpr int kFewStride = kFewDepth + 4;  // floats: aligned to 16 bytes, and eight rows meet all banks

using FewMemory = float[kFewSide][kFewStride];

/// A group's part of a piece of K, for every eighth row from `tn` and `tm` on.
__device__ __forceinline__ void multiply_piece(const FewMemory& w, const FewMemory& x, int first, int tn, int tm,
                                               float (&acc)[kMicro][kMicro]) {
#pragma unroll
  for (int d = 0; d < kFewDepth / kFewGroups; d += 4) {
    float4 ws[kMicro], xs[kMicro];
#pragma unroll
    for (int i = 0; i < kMicro; ++i) {
      ws[i] = *reinterpret_cast<const float4*>(&w[tn + 8 * i][first + d]);
      xs[i] = *reinterpret_cast<const float4*>(&x[tm + 8 * i][first + d]);
    }
#pragma unroll
    for (int i = 0; i < kMicro; ++i) {
#pragma unroll
      for (int j = 0; j < kMicro; ++j) {
        acc[i][j] += xs[i].x * ws[j].x;
        acc[i][j] += xs[i].y * ws[j].y;
        acc[i][j] += xs[i].z * ws[j].z;
        acc[i][j] += xs[i].w * ws[j].w;
      }
    }
  }
}

/// 32 x 32 results per block, for the router, whose weights give few blocks: eight groups of 64 threads each have an
/// eighth of every piece of K, 4 x 4 results a thread (every eighth row), and add their sums up at the end. The next
/// piece is on its way in registers meanwhile. Rows are multiples of 4 long.
__global__ void __launch_bounds__(kFewThreads) few_float_tiles(const __grid_constant__ ProductArgs a) {
  constexpr int kQuads = kFewDepth / 4, kCopies = kFewSide * kQuads / kFewThreads;
  __shared__ alignas(16) FewMemory memory[2];  // weights, activations
  begin_kernel();
  const int rows = live(a.rows), thread = static_cast<int>(threadIdx.x);
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.x) * kFewSide;
  const int m0 = static_cast<int>(blockIdx.y) * kFewSide;
  if (m0 >= rows) return;
  const int depth = thread % kQuads * 4, row = thread / kQuads;  // the first row that this thread copies
  const float* w = reinterpret_cast<const float*>(a.w.codes) + (a.w.first + n0 + row) * a.w.k + depth;
  const float* x = a.x_float + static_cast<std::int64_t>(m0 + row) * a.w.k + depth;
  constexpr int kRowsApart = kFewSide / kCopies;
  float4 next[2][kCopies];
  const auto request = [&](int k0) {
#pragma unroll
    for (int j = 0; j < kCopies; ++j) {
      const int r = row + j * kRowsApart;
      const std::int64_t at = static_cast<std::int64_t>(j) * kRowsApart * a.w.k + k0;
      const bool inside = k0 + depth < a.w.k;
      next[0][j] = inside && n0 + r < a.w.n ? *reinterpret_cast<const float4*>(w + at) : float4{};
      next[1][j] = inside && m0 + r < rows ? *reinterpret_cast<const float4*>(x + at) : float4{};
    }
  };
  const int group = thread / 64, tn = thread % 8, tm = thread / 8 % 8;
  float acc[kMicro][kMicro] = {};
  request(0);
#pragma unroll 1
  for (int k0 = 0; k0 < a.w.k; k0 += kFewDepth) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < kCopies; ++j) {
        *reinterpret_cast<float4*>(&memory[i][row + j * kRowsApart][depth]) = next[i][j];
      }
    }
    __syncthreads();
    if (k0 + kFewDepth < a.w.k) request(k0 + kFewDepth);
    multiply_piece(memory[0], memory[1], group * (kFewDepth / kFewGroups), tn, tm, acc);
  }
  __syncthreads();
  float* sums = &memory[0][0][0];  // [group][row][column]
  static_assert(kFewGroups * kFewSide * kFewSide * sizeof(float) <= sizeof memory);
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
#pragma unroll
    for (int j = 0; j < kMicro; ++j) sums[(group * kFewSide + tm + 8 * i) * kFewSide + tn + 8 * j] = acc[i][j];
  }
  __syncthreads();
  for (int i = thread; i < kFewSide * kFewSide; i += kFewThreads) {
    float sum = 0;
#pragma unroll
    for (int g = 0; g < kFewGroups; ++g) sum += sums[g * kFewSide * kFewSide + i];
    const std::int64_t n = n0 + i % kFewSide, m = m0 + i / kFewSide;
    if (m < rows && n < a.w.n) a.y[m * a.y_stride + n] = finish(a, sum, n, 0);
  }
}

template <class T>
void vector_of(const ProductArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((args.w.n * kWarp + kVectorThreads - 1) / kVectorThreads),
                  static_cast<unsigned>(args.rows.capacity));
  const bool wide = static_cast<std::size_t>(args.w.k) * sizeof(T) % 16 == 0;
  launch(wide ? float_vector_product<T, true> : float_vector_product<T, false>, grid, kVectorThreads, 0, stream, args);
}

/// Whether large tiles would leave multiprocessors without work. Only for F32: other types' golden values know the
/// order in which large tiles add.
bool wants_few_tiles(const ProductArgs& args) {
  constexpr std::int64_t kFewBlocks = 256;
  const std::int64_t large = (args.w.n + kSide - 1) / kSide * ((args.rows.capacity + kSide - 1) / kSide);
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  return large <= kFewBlocks && args.w.k % 4 == 0 && aligned(args.w.codes) && aligned(args.x_float);
}

template <class T>
void tile_of(const ProductArgs& args, cudaStream_t stream) {
  if (std::is_same_v<T, float> && wants_few_tiles(args)) {
    const dim3 few(static_cast<unsigned>((args.w.n + kFewSide - 1) / kFewSide),
                   static_cast<unsigned>((args.rows.capacity + kFewSide - 1) / kFewSide));
    return launch(few_float_tiles, few, kFewThreads, 0, stream, args);
  }
  const dim3 grid(static_cast<unsigned>((args.w.n + kSide - 1) / kSide),
                  static_cast<unsigned>((args.rows.capacity + kSide - 1) / kSide));
  launch(float_tile_product<T>, grid, 256, 0, stream, args);
}

}  // namespace

void launch_float_vector_product(FloatKind kind, const ProductArgs& args, cudaStream_t stream) {
  switch (kind) {
    case FloatKind::f32:
      return vector_of<float>(args, stream);
    case FloatKind::f16:
      return vector_of<__half>(args, stream);
    case FloatKind::bf16:
      return vector_of<__nv_bfloat16>(args, stream);
  }
}

void launch_float_tile_product(FloatKind kind, const ProductArgs& args, cudaStream_t stream) {
  switch (kind) {
    case FloatKind::f32:
      return tile_of<float>(args, stream);
    case FloatKind::f16:
      return tile_of<__half>(args, stream);
    case FloatKind::bf16:
      return tile_of<__nv_bfloat16>(args, stream);
  }
}

}  // namespace ggml::cuda
