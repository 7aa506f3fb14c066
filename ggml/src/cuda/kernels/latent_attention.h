#pragma once

#include "cuda/kernels/attention.h"

/// Attention of many rows (prompts) over latents: large keys of which the first elements are the values.
namespace ggml::cuda {

/// Whether the tensor cores take this cache: F16, sizes, causal and whole attention without caps, and enough shared
/// memory on the card in use. There are no sinks.
[[nodiscard]] bool has_latent_attention(const AttentionArgs& args);
[[nodiscard]] int latent_attention_splits(int tokens, int n_head, int n_head_kv, int multiprocessors) noexcept;
/// As launch_attention, with any n_splits; `max_spans` is how many spans a step may have.
void launch_latent_attention(const AttentionArgs& args, int max_spans, CUstream_st* stream);

}  // namespace ggml::cuda
