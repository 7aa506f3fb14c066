#pragma once

#include "cuda/kernels/kv_codes.cuh"

/// What kernels over the KV cache share: where a row's cells lie, what it may see.
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

/// Sums of kHeads values over kLanes lanes; lane l of them gets that of head l / (kLanes / kHeads).
template <int kHeads, int kLanes>
__device__ __forceinline__ float scatter_sums(float (&s)[kHeads], int lane) {
  int offset = kLanes / 2;
#pragma unroll
  for (int width = kHeads / 2; width > 0; width /= 2, offset /= 2) {
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float sent = upper ? s[i] : s[i + width], kept = upper ? s[i + width] : s[i];
      s[i] = kept + __shfl_xor_sync(~0u, sent, offset);
    }
  }
#pragma unroll
  for (; offset > 0; offset /= 2) s[0] += __shfl_xor_sync(~0u, s[0], offset);
  return s[0];
}

}  // namespace ggml::cuda
