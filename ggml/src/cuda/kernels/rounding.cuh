#pragma once

#include <cuda_fp16.h>

#include "cuda/kernels/device.cuh"
#include "ggml/type.h"

/// Rounding to 8 bits by a warp that holds 256 consecutive values of a row: lane l has values 8 l .. 8 l + 7.
namespace ggml::cuda {

inline constexpr int kLaneValues = 8;
inline constexpr int kWarpValues = kWarp * kLaneValues;

/// Four values, rounded and bounded, as bytes.
__device__ __forceinline__ unsigned pack_codes(float v0, float v1, float v2, float v3) {
  const int i0 = __float2int_rn(v0), i1 = __float2int_rn(v1), i2 = __float2int_rn(v2), i3 = __float2int_rn(v3);
  unsigned high, all;
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(i3), "r"(i2), "r"(0));
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(i1), "r"(i0), "r"(high));
  return all;
}

/// What a lane has to write of its eight rounded values: the codes; every fourth lane a scale, every second a sum.
struct RoundedLane {
  uint2 codes;
  float d, s;
};

/// Rounds 256 values to the form `act` (q8_0, q8_1 or q8_k). `at`: where this lane's values stand in the row; lanes
/// beyond its end pass zeros. The whole warp calls it. Blocks of 256 have one scale, and the code of the value of
/// greatest magnitude (the first of equals) is -127; in the others four lanes share a scale, which is rounded to a
/// half. The code is short because a launch of a few microseconds runs it once: instructions that no cache has yet cost
/// more than the work they do.
__device__ __forceinline__ RoundedLane round_values(ActType act, const float (&v)[kLaneValues], int at) {
  float amax = 0.0f;
#pragma unroll
  for (int j = 0; j < kLaneValues; ++j) amax = fmaxf(amax, fabsf(v[j]));
  const float own = amax;
  amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 2));
  float inverse = 0.0f, d = 0.0f;
  if (act == ActType::q8_k) {
#pragma unroll
    for (int offset = 4; offset < kWarp; offset *= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, offset));
    float greatest = 0.0f;
#pragma unroll
    for (int j = kLaneValues - 1; j >= 0; --j) greatest = fabsf(v[j]) == own ? v[j] : greatest;
    const unsigned lanes = __ballot_sync(~0u, own == amax);
    greatest = __shfl_sync(~0u, greatest, lanes == 0 ? 0 : __ffs(static_cast<int>(lanes)) - 1);
    if (amax > 0.0f) {
      inverse = -127.0f / greatest;
      d = 1.0f / inverse;
    }
  } else {
    inverse = amax > 0 ? 127.0f / amax : 0.0f;
    d = __half2float(__float2half_rn(amax / 127.0f));
  }
  RoundedLane r;
  r.codes.x = pack_codes(inverse * v[0], inverse * v[1], inverse * v[2], inverse * v[3]);
  r.codes.y = pack_codes(inverse * v[4], inverse * v[5], inverse * v[6], inverse * v[7]);
  r.d = d;
  int sum = __dp4a(static_cast<int>(r.codes.x), 0x01010101, __dp4a(static_cast<int>(r.codes.y), 0x01010101, 0));
  sum += __shfl_xor_sync(~0u, sum, 1);  // of 16 values
  r.s = d * static_cast<float>(sum);
  if (act == ActType::q8_1) {  // the form keeps d * sum of the block as a half
    sum += __shfl_xor_sync(~0u, sum, 2);
    r.s = at % kUnit == 0 ? __half2float(__float2half_rn(static_cast<float>(sum) * d)) : 0.0f;
  }
  return r;
}

/// Rounds 256 values of row `row`, which has k, and writes them. The whole warp calls it.
__device__ __forceinline__ void write_rounded(ActType act, const float (&v)[kLaneValues], int at, int k,
                                              std::int64_t row, const QuantisedRows& to) {
  const RoundedLane r = round_values(act, v, at);
  if (at >= k) return;
  const std::int64_t i = row * k + at;
  *reinterpret_cast<uint2*>(to.q + i) = r.codes;
  if (at % kUnit == 0) to.d[i / kUnit] = r.d;
  if (at % 16 == 0) to.s[i / 16] = r.s;
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
