#pragma once

#include "cuda/kernels/attention.h"

/// Attention of many rows (prompts) on the tensor cores.
namespace ggml::cuda {

inline constexpr int kPromptRows = 64;      // a block's rows: query heads of tokens
inline constexpr int kPromptThreads = 128;  // of a block
inline constexpr int kMinPromptTokens = 17;

/// Whether keys and values of these types and sizes can be multiplied so.
[[nodiscard]] bool has_prompt_attention(const KvPlanes& kv) noexcept;
/// How many parts the cells of each row are split into, so that `tokens` tokens fill the card.
[[nodiscard]] int prompt_attention_splits(int tokens, int n_head, int n_head_kv, int multiprocessors) noexcept;
/// As launch_attention, with any n_splits; `max_spans` is how many spans a step may have.
void launch_prompt_attention(const AttentionArgs& args, int max_spans, CUstream_st* stream);

struct PromptGrid {
  int tiles = 0;
  int shared_limit = 0;  // bytes of shared memory that a block may have
};
/// Heads of at most kD elements; false: the card has too little shared memory. Instantiated in instances/.
template <int kD>
[[nodiscard]] bool launch_prompt_attention(const AttentionArgs& args, const PromptGrid& grid, CUstream_st* stream);

}  // namespace ggml::cuda
