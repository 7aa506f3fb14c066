#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/kernels/weights.h"

/// What kernels share: the order between launches, reductions, counts.
namespace ggml::cuda {

inline constexpr int kWarp = 32;

/// Waits for the kernels before this one. Every thread of every block calls it before it reads what they wrote and
/// before it ends (also a block with nothing to do), or the order of later kernels is lost. Weights, counts and the
/// step's inputs (ports_on_card.h) may be read before: they were there when the first kernel of the graph began.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel start as soon as there is room for it; it still waits where it must.
__device__ __forceinline__ void allow_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void begin_kernel() {
  allow_next();
  wait_for_previous();
}

__device__ __forceinline__ int live(const RowCount& rows) {
  return rows.count == nullptr ? rows.per_count : rows.per_count * *rows.count;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, offset));
  return v;
}

/// Sum over the block, in every thread. `shared` has room for 32 floats and may be used again after the call.
__device__ __forceinline__ float block_sum(float v, float* shared) {
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = threadIdx.x % kWarp < (blockDim.x + kWarp - 1) / kWarp ? shared[threadIdx.x % kWarp] : 0.0f;
  return warp_sum(v);
}
__device__ __forceinline__ float block_max(float v, float* shared) {
  v = warp_max(v);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = threadIdx.x % kWarp < (blockDim.x + kWarp - 1) / kWarp ? shared[threadIdx.x % kWarp] : -INFINITY;
  return warp_max(v);
}

}  // namespace ggml::cuda
