#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <utility>

#include "cuda/kernels/attention.h"
#include "cuda/kernels/device.cuh"
#include "quant/grids.h"

/// Rows of keys and values in and out of their planes, for every type that may hold them. The type is a matter of the
/// whole launch: branches on KvCoding are the same for all lanes.
namespace ggml::cuda {

inline constexpr int kGroupNibbles = 16;  // bytes of the low four bits of a group
inline constexpr int kLoadValues = 8;     // elements that load_8 reads

/// Bytes 4 i .. 4 i + 3 of the table that codes choose from.
constexpr unsigned table_word(int i) {
  unsigned word = 0;
  for (int j = 3; j >= 0; --j) word = word << 8 | static_cast<std::uint8_t>(quant::kValues4[4 * i + j]);
  return word;
}

template <int i>
inline constexpr unsigned kTableWord = table_word(i);

/// Twice the edge between the table's values k and k + 1.
template <std::size_t k>
inline constexpr int kTwiceEdge = quant::kValues4[k] + quant::kValues4[k + 1];

template <std::size_t... k>
__device__ __forceinline__ int edges_below(int twice, std::index_sequence<k...>) {
  return ((twice > kTwiceEdge<k> ? 1 : 0) + ...);
}

/// The table's values for four codes, a byte each.
__device__ __forceinline__ unsigned choose_4(unsigned codes) {
  unsigned at = codes & 0x07070707u;  // in either half of the table: as nibbles of one selector
  at = (at | at >> 4) & 0x00ff00ffu;
  at = (at | at >> 8) & 0xffffu;
  const unsigned upper = (codes >> 3 & 0x01010101u) * 255u;
  return (__byte_perm(kTableWord<0>, kTableWord<1>, at) & ~upper) |
         (__byte_perm(kTableWord<2>, kTableWord<3>, at) & upper);
}

/// Bits 0..3 of `bits` as the fifth bit of four bytes.
__device__ __forceinline__ unsigned fifth_bits(unsigned bits) {
  return (((bits & 15u) * 0x00204081u) & 0x01010101u) << 4;
}

/// Codes i .. i + 7 of a quantised row (i a multiple of 8) as signed bytes, center subtracted.
__device__ __forceinline__ uint2 load_codes(const KvCoding& c, const std::uint8_t* row, int i) {
  if (c.bits == 8) return *reinterpret_cast<const uint2*>(row + i);
  const std::uint8_t* group = row + i / kUnit * 4 * c.bits;
  const int e = i % kUnit, low = e % kGroupNibbles, upper = e / kGroupNibbles;
  const std::uint8_t* nibbles = group + 4 * (c.bits - 4) + low;
  unsigned a = *reinterpret_cast<const unsigned*>(nibbles) >> (4 * upper) & 0x0f0f0f0fu;
  unsigned b = *reinterpret_cast<const unsigned*>(nibbles + 4) >> (4 * upper) & 0x0f0f0f0fu;
  if (c.bits == 5) {
    const unsigned bits = group[e / 8];
    a |= fifth_bits(bits);
    b |= fifth_bits(bits >> 4);
  } else if (c.bits == 6) {
    const int shift = low / 8 * 4 + upper * 2;
    a |= (reinterpret_cast<const unsigned*>(group)[0] >> shift & 0x03030303u) << 4;
    b |= (reinterpret_cast<const unsigned*>(group)[1] >> shift & 0x03030303u) << 4;
  }
  if (c.chooses) return {choose_4(a), choose_4(b)};
  const unsigned center = 0x01010101u * static_cast<unsigned>(c.center);
  return {__vsub4(a, center), __vsub4(b, center)};
}

/// Scale and minimum of element i.
__device__ __forceinline__ float2 load_scale(const KvCoding& c, const std::uint8_t* scales, int token, int i) {
  const std::uint8_t* row = scales + token * c.scale_row_bytes;
  if (c.row_scale) return {*reinterpret_cast<const float*>(row), 0.0f};
  if (c.has_min) return __half22float2(reinterpret_cast<const __half2*>(row)[i / kUnit]);
  return {__half2float(reinterpret_cast<const __half*>(row)[i / kUnit]), 0.0f};
}

__device__ __forceinline__ void halves_to_floats(const uint4& bits, float (&v)[kLoadValues]) {
  const __half2* h = reinterpret_cast<const __half2*>(&bits);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 f = __half22float2(h[i]);
    v[2 * i] = f.x;
    v[2 * i + 1] = f.y;
  }
}

/// Elements i .. i + 7 of a token's row; i and the row's length are multiples of 8.
__device__ __forceinline__ void load_8(const KvCoding& c, const std::uint8_t* values, const std::uint8_t* scales,
                                       int token, int i, float (&v)[kLoadValues]) {
  const std::uint8_t* row = values + token * c.row_bytes;
  if (c.bits != 0) {
    const uint2 codes = load_codes(c, row, i);
    const float2 scale = load_scale(c, scales, token, i);
#pragma unroll
    for (int j = 0; j < kLoadValues; ++j) {
      const auto code = static_cast<std::int8_t>((j < 4 ? codes.x : codes.y) >> (8 * (j % 4)));
      v[j] = fmaf(scale.x, static_cast<float>(code), scale.y);
    }
  } else if (c.type == DType::f32) {
    const float4* at = reinterpret_cast<const float4*>(row + 4 * i);
    const float4 a = at[0], b = at[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else {
    const uint4 bits = *reinterpret_cast<const uint4*>(row + 2 * i);
    if (c.type == DType::f16) return halves_to_floats(bits, v);
    const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      v[2 * w] = __uint_as_float(words[w] << 16);
      v[2 * w + 1] = __uint_as_float(words[w] & 0xffff0000u);
    }
  }
}

/// One element of a token's row, wherever it lies.
__device__ __forceinline__ float load_one(const KvCoding& c, const std::uint8_t* values, const std::uint8_t* scales,
                                          int token, int i) {
  const std::uint8_t* row = values + token * c.row_bytes;
  if (c.bits == 0) {
    if (c.type == DType::f32) return reinterpret_cast<const float*>(row)[i];
    if (c.type == DType::f16) return __half2float(reinterpret_cast<const __half*>(row)[i]);
    return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[i]);
  }
  const uint2 codes = load_codes(c, row, i & ~(kLoadValues - 1));
  const float2 scale = load_scale(c, scales, token, i);
  const auto code = static_cast<std::int8_t>((i & 4 ? codes.y : codes.x) >> (8 * (i % 4)));
  return fmaf(scale.x, static_cast<float>(code), scale.y);
}

// Writing. A warp has a row, a lane one element of each group of 32; the rules are those of encode_kv_row
// (ggml/kv_rows.h), bit for bit.

/// Ties to even; NaN becomes the lowest code.
__device__ __forceinline__ int rounded_code(float v, int lo, int hi) {
  if (!(v > static_cast<float>(lo))) return lo;
  return v < static_cast<float>(hi) ? __float2int_rn(v) : hi;
}

__device__ __forceinline__ float inverse_of(float d) {
  return d != 0.0f ? 1.0f / d : 0.0f;
}

__device__ __forceinline__ int warp_sum(int v) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

/// The code of the table's value nearest to x / d, and in `scale` the d that then fits all 32 best.
__device__ __forceinline__ int choose_code(float x, float extreme, float2& scale) {
  const float d = extreme / -127.0f;
  const int t = rounded_code(x * inverse_of(d), -128, 127);
  const int code = edges_below(2 * t, std::make_index_sequence<15>{});
  const auto value = static_cast<int>(static_cast<std::int8_t>(choose_4(static_cast<unsigned>(code))));
  const int hits = warp_sum(t * value), squares = warp_sum(value * value);
  scale = {d * static_cast<float>(hits) / static_cast<float>(squares), 0.0f};
  return code;
}

/// The code of this lane's element, and scale and minimum of the warp's 32.
__device__ __forceinline__ int encode_32(const KvCoding& c, float x, float2& scale) {
  const float hi = warp_max(x), lo = -warp_max(-x);
  if (c.has_min) {
    const int top = (1 << c.bits) - 1;
    const float m = lo + 0.0f, d = (hi - m) / static_cast<float>(top);  // a zero has no sign
    scale = {d, m};
    return rounded_code((x - m) * inverse_of(d), 0, top);
  }
  if (c.bits == 8) {
    const float most = fmaxf(hi, -lo);
    scale = {most / 127.0f, 0.0f};
    return rounded_code(x * (most != 0.0f ? 127.0f / most : 0.0f), -128, 127);
  }
  const float extreme = (hi >= -lo ? hi : lo) + 0.0f;
  if (c.chooses) return choose_code(x, extreme, scale);
  const float d = extreme / static_cast<float>(-c.center);
  scale = {d, 0.0f};
  return rounded_code(x * inverse_of(d), -c.center, c.center - 1) + c.center;
}

/// The warp's 32 codes to their group.
__device__ __forceinline__ void store_codes(int bits, int code, std::uint8_t* group) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (bits == 8) {
    group[lane] = static_cast<std::uint8_t>(code);
    return;
  }
  const int other = __shfl_down_sync(~0u, code, kGroupNibbles), high = code >> 4;
  if (lane < kGroupNibbles) group[4 * (bits - 4) + lane] = static_cast<std::uint8_t>((code & 15) | (other & 15) << 4);
  if (bits == 5) {
    const unsigned word = __ballot_sync(~0u, high != 0);
    if (lane == 0) *reinterpret_cast<unsigned*>(group) = word;
  } else if (bits == 6) {
    int byte = high << (lane % kGroupNibbles / 8 * 4 + lane / kGroupNibbles * 2);
    byte |= __shfl_xor_sync(~0u, byte, 8);
    byte |= __shfl_xor_sync(~0u, byte, 16);
    if (lane < 8) group[lane] = static_cast<std::uint8_t>(byte);
  }
}

__device__ __forceinline__ void store_float_row(DType type, const float* x, int dim, std::uint8_t* row) {
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < dim; i += kWarp) {
    if (type == DType::f32) {
      reinterpret_cast<float*>(row)[i] = x[i];
    } else if (type == DType::f16) {
      reinterpret_cast<__half*>(row)[i] = __float2half_rn(x[i]);
    } else {
      reinterpret_cast<__nv_bfloat16*>(row)[i] = __float2bfloat16_rn(x[i]);
    }
  }
}

/// Writes one head's `dim` values of one token; the whole warp calls it.
__device__ __forceinline__ void store_row(const KvCoding& c, const float* x, int dim, std::uint8_t* values,
                                          std::uint8_t* scales, int token) {
  std::uint8_t* row = values + token * c.row_bytes;
  if (c.bits == 0) return store_float_row(c.type, x, dim, row);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::uint8_t* scale_row = scales + token * c.scale_row_bytes;
  float most = 0.0f;
  if (c.row_scale) {
    for (int i = lane; i < dim; i += kWarp) most = fmaxf(most, fabsf(x[i]));
    most = warp_max(most);
    if (lane == 0) *reinterpret_cast<float*>(scale_row) = most / 127.0f;
  }
  const float inverse = most != 0.0f ? 127.0f / most : 0.0f;
  for (int group = 0; group < dim / kUnit; ++group) {
    const float v = x[group * kUnit + lane];
    float2 scale{};
    const int code = c.row_scale ? rounded_code(v * inverse, -128, 127) : encode_32(c, v, scale);
    store_codes(c.bits, code, row + group * 4 * c.bits);
    if (c.row_scale || lane != 0) continue;
    if (c.has_min) {
      reinterpret_cast<__half2*>(scale_row)[group] = __floats2half2_rn(scale.x, scale.y);
    } else {
      reinterpret_cast<__half*>(scale_row)[group] = __float2half_rn(scale.x);
    }
  }
}

}  // namespace ggml::cuda
