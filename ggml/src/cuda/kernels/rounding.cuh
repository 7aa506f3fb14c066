#pragma once

#include <cuda_fp16.h>

#include "cuda/kernels/device.cuh"
#include "ggml/type.h"

/// Rounding to 8 bits by a warp that holds 256 consecutive values of a row: lane l has values 8 l .. 8 l + 7.
namespace ggml::cuda {

inline constexpr int kLaneValues = 8;
inline constexpr int kWarpValues = kWarp * kLaneValues;

/// The scale of one block of 256 and the codes of this lane's values. The code of the value of greatest magnitude (the
/// first of equals) is -127.
__device__ __forceinline__ float codes_of_256(const float (&v)[kLaneValues], float (&q)[kLaneValues]) {
  float amax = 0.0f;
#pragma unroll
  for (int j = 0; j < kLaneValues; ++j) amax = fmaxf(amax, fabsf(v[j]));
  const float own = amax;
  amax = warp_max(amax);
  float greatest = 0.0f;
#pragma unroll
  for (int j = kLaneValues - 1; j >= 0; --j) greatest = fabsf(v[j]) == own ? v[j] : greatest;
  const unsigned lanes = __ballot_sync(~0u, own == amax);
  greatest = __shfl_sync(~0u, greatest, lanes == 0 ? 0 : __ffs(static_cast<int>(lanes)) - 1);
  if (!(amax > 0.0f)) {
#pragma unroll
    for (int j = 0; j < kLaneValues; ++j) q[j] = 0.0f;
    return 0.0f;
  }
  const float inverse = -127.0f / greatest;
#pragma unroll
  for (int j = 0; j < kLaneValues; ++j) q[j] = fminf(127.0f, rintf(inverse * v[j]));
  return 1.0f / inverse;
}

/// The same for blocks of 32: four lanes share a scale, which is rounded to a half.
__device__ __forceinline__ float codes_of_32(const float (&v)[kLaneValues], float (&q)[kLaneValues]) {
  float amax = 0.0f;
#pragma unroll
  for (int j = 0; j < kLaneValues; ++j) amax = fmaxf(amax, fabsf(v[j]));
  amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 2));
  const float inverse = amax > 0 ? 127.0f / amax : 0.0f;
#pragma unroll
  for (int j = 0; j < kLaneValues; ++j) q[j] = rintf(v[j] * inverse);
  return __half2float(__float2half_rn(amax / 127.0f));
}

/// Writes 256 values of row `row` in the form `act` (q8_0, q8_1 or q8_k). `at`: where this lane's values stand in the
/// row of k values; lanes beyond the end pass zeros. The whole warp calls it.
__device__ __forceinline__ void write_rounded(ActType act, const float (&v)[kLaneValues], int at, int k,
                                              std::int64_t row, const QuantisedRows& to) {
  float q[kLaneValues];
  const float d = act == ActType::q8_k ? codes_of_256(v, q) : codes_of_32(v, q);
  float sum = 0.0f;
  unsigned words[2] = {};
#pragma unroll
  for (int j = 0; j < kLaneValues; ++j) {
    sum += q[j];
    words[j / 4] |= (static_cast<unsigned>(static_cast<int>(q[j])) & 255u) << (8 * (j % 4));
  }
  sum += __shfl_xor_sync(~0u, sum, 1);               // of 16 values
  const float other = __shfl_xor_sync(~0u, sum, 2);  // of the unit's other 16
  if (at >= k) return;
  const std::int64_t i = row * k + at;
  *reinterpret_cast<uint2*>(to.q + i) = {words[0], words[1]};
  if (at % kUnit == 0) to.d[i / kUnit] = d;
  if (at % 16 != 0) return;
  if (act != ActType::q8_1) {
    to.s[i / 16] = d * sum;
  } else {  // the form keeps d * sum of the block as a half
    to.s[i / 16] = at % kUnit == 0 ? __half2float(__float2half_rn((sum + other) * d)) : 0.0f;
  }
}

/// Eight values of a row from aligned memory; zeros beyond its end.
__device__ __forceinline__ void load_values(const float* row, int at, int k, float (&v)[kLaneValues]) {
  float4 a{}, b{};
  if (at < k) {
    a = *reinterpret_cast<const float4*>(row + at);
    b = *reinterpret_cast<const float4*>(row + at + 4);
  }
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
  v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

__device__ __forceinline__ void store_values(float* row, int at, int k, const float (&v)[kLaneValues]) {
  if (at >= k) return;
  *reinterpret_cast<float4*>(row + at) = {v[0], v[1], v[2], v[3]};
  *reinterpret_cast<float4*>(row + at + 4) = {v[4], v[5], v[6], v[7]};
}

/// Whether this block is the last of `n` to come here; it then sees what the others wrote before. Every thread of the
/// block calls it. `count` is zero before the first and after the last.
__device__ __forceinline__ bool last_to_arrive(int* count, int n) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(count, 1) == n - 1;
    if (is_last) *count = 0;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

}  // namespace ggml::cuda
