#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ggml/sample_row.h"

namespace ggml {

/// What the chain reads for one row.
struct SamplerInput {
  std::span<const float> logits;           // [n_vocab], raw
  std::span<const SampleAdjust> adjust;    // this row's range; tokens outside the vocabulary are ignored
  std::span<const std::uint32_t> allowed;  // [ceil(n_vocab / 32)] bit mask, or empty: all tokens are allowed
};

/// Bytes of workspace for one row.
[[nodiscard]] std::size_t sampler_scratch_bytes(std::size_t n_vocab) noexcept;

/// Runs the sampler chain for one row and draws a token.
///
/// Order: mask, logit biases, the row's stages in their order, draw. Logits and probabilities are float; sums are taken
/// in double. A token with a logit of -inf or NaN is no candidate, so the mask holds through every stage. Order of
/// candidates: by token until a stage sorts them (by falling logit, ties to the lower token; the typical stage by its
/// own score). The draw walks them in their current order and takes the first whose running sum of exp(l - l_max)
/// reaches uniform * total. Greedy takes the largest logit, ties to the lower token.
///
/// scratch  sampler_scratch_bytes(n_vocab) bytes, 16-byte aligned; nothing is allocated.
/// Cost: one pass over the logits and a heap of k elements when the chain starts with a small top-k; no full sort
/// unless a stage needs one. noexcept; thread-safe with scratch of one's own.
void run_sampler_chain(const SampleRow& row, const SamplerInput& input, std::span<std::byte> scratch,
                       SampleResult& result) noexcept;

}  // namespace ggml
