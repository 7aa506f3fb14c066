#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/attention.h"
#include "cuda/kernels/device.cuh"

/// What kernels over the KV cache share: where a row's cells lie, what it may see, single values in and out.
namespace ggml::cuda {

inline constexpr int kTokens = kKvBlockTokens;

struct RowPlace {
  int span;
  int cell;
};

/// The span that holds a row, or -1.
__device__ inline RowPlace place_of(const KvInputs& in, int row) {
  const int n = *in.n_spans;
  for (int s = 0; s < n; ++s) {
    const AttnSpan& span = in.spans[s];
    if (row >= span.first_row && row < span.first_row + span.n_rows) return {s, span.first_cell + row - span.first_row};
  }
  return {-1, 0};
}

__device__ inline std::uint8_t* block_of(const KvInputs& in, const AttnSpan& span, int index,
                                         std::int64_t block_bytes) {
  if (index < span.first_block) return nullptr;
  const int block = in.table[span.table_offset + index - span.first_block];
  return block < 0 ? nullptr : in.pool + block * block_bytes;
}

/// Writes one head's vector of one token: the float types element by element, q8_0 with a warp per 32.
__device__ inline void store_value(DType type, int dim, const float* x, std::uint8_t* values, std::uint8_t* scales,
                                   int token, int i) {
  switch (type) {
    case DType::f32:
      reinterpret_cast<float*>(values)[token * dim + i] = x[i];
      return;
    case DType::f16:
      reinterpret_cast<__half*>(values)[token * dim + i] = __float2half_rn(x[i]);
      return;
    case DType::bf16:
      reinterpret_cast<__nv_bfloat16*>(values)[token * dim + i] = __float2bfloat16_rn(x[i]);
      return;
    default: {  // 8-bit codes with an f16 scale per 32; the whole warp is here
      const float v = x[i];
      const float amax = warp_max(fabsf(v));
      const float inverse = amax > 0 ? 127.0f / amax : 0.0f;
      reinterpret_cast<std::int8_t*>(values)[token * dim + i] = static_cast<std::int8_t>(rintf(v * inverse));
      if (i % kUnit == 0)
        reinterpret_cast<__half*>(scales)[token * (dim / kUnit) + i / kUnit] = __float2half_rn(amax / 127.0f);
    }
  }
}

__device__ inline float load_value(DType type, int dim, const std::uint8_t* values, const std::uint8_t* scales,
                                   int token, int i) {
  switch (type) {
    case DType::f32:
      return reinterpret_cast<const float*>(values)[token * dim + i];
    case DType::f16:
      return __half2float(reinterpret_cast<const __half*>(values)[token * dim + i]);
    case DType::bf16:
      return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(values)[token * dim + i]);
    default:
      return __half2float(reinterpret_cast<const __half*>(scales)[token * (dim / kUnit) + i / kUnit]) *
             static_cast<float>(reinterpret_cast<const std::int8_t*>(values)[token * dim + i]);
  }
}

__device__ inline bool visible(const AttentionArgs& a, int query, int key) {
  if (a.causal && key > query) return false;
  switch (a.window_kind) {
    case WindowKind::none:
      return true;
    case WindowKind::standard:
      return query - key < a.window;
    case WindowKind::chunked:
      return key >= query / a.window * a.window;
    case WindowKind::symmetric:
      return abs(query - key) <= a.window / 2;
  }
  return true;
}

/// The first cell a row may see.
__device__ inline int first_visible(const AttentionArgs& a, int query) {
  switch (a.window_kind) {
    case WindowKind::standard:
      return max(0, query - a.window + 1);
    case WindowKind::chunked:
      return query / a.window * a.window;
    case WindowKind::symmetric:
      return max(0, query - a.window / 2);
    case WindowKind::none:
      break;
  }
  return 0;
}

__device__ inline float alibi_slope(const AttentionArgs& a, int head) {
  if (a.max_alibi_bias <= 0) return 0.0f;
  int n2 = 1;
  while (2 * n2 <= a.n_head) n2 *= 2;
  return head < n2 ? exp2f(-a.max_alibi_bias / static_cast<float>(n2) * static_cast<float>(head + 1))
                   : exp2f(-a.max_alibi_bias / 2.0f / static_cast<float>(n2) * static_cast<float>(2 * (head - n2) + 1));
}

}  // namespace ggml::cuda
