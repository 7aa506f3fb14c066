#include "cuda/kernels/joins.h"

#include "cuda/kernels/device.cuh"
#include "cuda/kernels/launch.cuh"

// A thread per element; all of it is small next to the products around it.
namespace ggml::cuda {
namespace {

constexpr int kBlock = 256;

unsigned blocks_for(std::int64_t n) {
  return static_cast<unsigned>((n + kBlock - 1) / kBlock);
}

__global__ void __launch_bounds__(kBlock) slice(const SliceArgs a) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  const std::int64_t row = i / a.count;
  if (row < live(a.rows)) a.y[i] = a.x[row * a.n + a.begin + i % a.count];
}

__global__ void __launch_bounds__(kBlock) concat(const ConcatArgs a) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  const std::int64_t row = i / (a.na + a.nb), at = i % (a.na + a.nb);
  if (row < live(a.rows)) a.y[i] = at < a.na ? a.a[row * a.na + at] : a.b[row / a.rows_per_b * a.nb + at - a.na];
}

/// A block per row, halvings in shared memory.
__global__ void __launch_bounds__(kBlock) hadamard(const float* x, float* y, int n, float factor, RowCount rows) {
  extern __shared__ float values[];
  begin_kernel();
  const std::int64_t row = blockIdx.x;
  if (row >= live(rows)) return;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kBlock) values[i] = x[row * n + i];
  for (int half = 1; half < n; half *= 2) {
    __syncthreads();
    for (int pair = static_cast<int>(threadIdx.x); pair < n / 2; pair += kBlock) {
      const int i = pair / half * 2 * half + pair % half;
      const float a = values[i], b = values[i + half];
      values[i] = a + b;
      values[i + half] = a - b;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kBlock) y[row * n + i] = values[i] * factor;
}

}  // namespace

void launch_slice(const SliceArgs& args, cudaStream_t stream) {
  launch(slice, blocks_for(std::int64_t{args.rows.capacity} * args.count), kBlock, 0, stream, args);
}

void launch_concat(const ConcatArgs& args, cudaStream_t stream) {
  launch(concat, blocks_for(std::int64_t{args.rows.capacity} * (args.na + args.nb)), kBlock, 0, stream, args);
}

void launch_hadamard(const float* x, float* y, int n, const RowCount& rows, cudaStream_t stream) {
  const float factor = 1.0f / std::sqrt(static_cast<float>(n));
  launch(hadamard, static_cast<unsigned>(rows.capacity), kBlock, static_cast<std::size_t>(n) * sizeof(float), stream, x,
         y, n, factor, rows);
}

}  // namespace ggml::cuda
