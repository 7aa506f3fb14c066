#pragma once

#include "cuda/kernels/kv_access.cuh"
#include "cuda/kernels/mma.cuh"
#include "cuda/kernels/prompt_attention.h"

/// Tiles of keys or values (one head of one block of 64 tokens) in shared memory as halves, for the tensor cores.
///
/// A row of kD halves is 16 bytes longer than it need be, so that eight rows of one column meet all banks. Values that
/// are no halves become the sum of two (22 bits) after multiplication by the power of two that brings the tile's
/// largest below 2^15: neither large nor small caches leave the halves' range.
namespace ggml::cuda {

template <int kD>
struct KvTile {
  static constexpr int kStride = 2 * kD + 16;  // bytes
  static constexpr int kBytes = kTokens * kStride;
};

/// Where one head of one block lies.
struct HeadTile {
  const std::uint8_t* values;
  const std::uint8_t* scales;
  const KvCoding& coding;
  int dim;
};
__device__ __forceinline__ HeadTile key_tile(const KvPlanes& kv, const std::uint8_t* block, int head) {
  return {block + head * kv.k_head, block + kv.k_scales + head * kv.k_head_scales, kv.k, kv.dk};
}
__device__ __forceinline__ HeadTile value_tile(const KvPlanes& kv, const std::uint8_t* block, int head) {
  return {block + kv.v_values + head * kv.v_head, block + kv.v_scales + head * kv.v_head_scales, kv.v, kv.dv};
}

/// Starts copying a tile of halves; tokens from `n` on become zeros.
template <int kD>
__device__ __forceinline__ void copy_tile(unsigned to, const HeadTile& tile, int n) {
  auto copy = [&](int chunks) {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * chunks; i += kPromptThreads) {
      const int token = i / chunks, chunk = i % chunks;
      copy_16(to + token * KvTile<kD>::kStride + 16 * chunk, tile.values + token * tile.coding.row_bytes + 16 * chunk,
              token < n);
    }
  };
  tile.dim == kD ? copy(kD / 8) : copy(tile.dim / 8);  // a constant makes the division a shift
}

/// The largest magnitude among this thread's share of the first n tokens, or a bound of it.
__device__ __forceinline__ float share_bound(const HeadTile& tile, int n) {
  float bound = 0;
  const KvCoding& c = tile.coding;
  if (c.bits != 0) {
    const int groups = c.row_scale ? 1 : tile.dim / kUnit;
    for (int i = static_cast<int>(threadIdx.x); i < n * groups; i += kPromptThreads) {
      const float2 scale = load_scale(c, tile.scales, i / groups, i % groups * kUnit);
      bound = fmaxf(bound, c.most * fabsf(scale.x) + fabsf(scale.y));
    }
    return bound;
  }
  const int chunks = tile.dim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < n * chunks; i += kPromptThreads) {
    float x[8];
    load_8(c, tile.values, tile.scales, i / chunks, i % chunks * 8, x);
#pragma unroll
    for (int j = 0; j < 8; ++j) bound = fmaxf(bound, fabsf(x[j]));
  }
  return bound;
}

/// The power of two that brings x into [2^(kBits - 1), 2^kBits), and what undoes it.
struct PowerOfTwo {
  float factor, inverse;
};
template <int kBits>
__device__ __forceinline__ PowerOfTwo scale_to_bits(float x) {
  constexpr int kBias = 127, kLeast = kBits + 1;
  const int exponent = max(static_cast<int>(__float_as_uint(x) >> 23 & 255u), kLeast);
  return {__uint_as_float(static_cast<unsigned>(2 * kBias + kBits - 1 - exponent) << 23),
          __uint_as_float(static_cast<unsigned>(exponent - kBits + 1) << 23)};
}

/// Two halves whose sum is the pair x, y: the nearest, and the nearest to what is left.
__device__ __forceinline__ void split_pair(float x, float y, unsigned& high, unsigned& low) {
  const __half2 h = __floats2half2_rn(x, y);
  const float2 f = __half22float2(h);
  const __half2 l = __floats2half2_rn(x - f.x, y - f.y);
  high = *reinterpret_cast<const unsigned*>(&h);
  low = *reinterpret_cast<const unsigned*>(&l);
}

/// Converts the first n tokens, times `factor`, to two planes of halves; tokens from n on become zeros.
template <int kD>
__device__ __forceinline__ void convert_tile(std::uint8_t* to, const HeadTile& tile, int n, float factor) {
  const int chunks = tile.dim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * chunks; i += kPromptThreads) {
    const int token = i / chunks, column = i % chunks * 8;
    float x[8] = {};
    if (token < n) load_8(tile.coding, tile.values, tile.scales, token, column, x);
    unsigned high[4], low[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) split_pair(factor * x[2 * j], factor * x[2 * j + 1], high[j], low[j]);
    std::uint8_t* at = to + token * KvTile<kD>::kStride + 2 * column;
    *reinterpret_cast<uint4*>(at) = {high[0], high[1], high[2], high[3]};
    *reinterpret_cast<uint4*>(at + KvTile<kD>::kBytes) = {low[0], low[1], low[2], low[3]};
  }
}

}  // namespace ggml::cuda
