#pragma once

#include "cuda/kernels/attention.h"

struct CUstream_st;

/// Attention of a single row from projected heads on, in one launch: norms of q and k, rotation, the new cell,
/// attention and the join of its splits, the result also rounded.
namespace ggml::cuda {

struct SingleAttentionArgs {
  HeadsArgs heads;       // q_rotated is not used
  AttentionArgs attend;  // neither q nor what the splits of other kernels need
};
/// Whether the current card and the sizes allow it; both planes of the cache are F16.
[[nodiscard]] bool single_attention_fits(const KvPlanes& kv, int n_head);
void launch_single_attention(const SingleAttentionArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
