#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ggml/sample_row.h"

namespace ggml {

/// A token that may still be chosen.
struct Candidate {
  float logit;
  std::int32_t token;
};

/// A stage that needs more than numbers, the texts of tokens for example. Only a host that calls run_sampler_chain()
/// itself has it: rows with SampleStage::host never go to a device.
class HostStage {
 public:
  virtual ~HostStage() = default;
  /// Reorders, changes and drops candidates; returns how many at the front of `candidates` stay.
  ///
  /// candidates  by falling logit, all above -inf; at least one
  /// n_all       their number with those that are at -inf counted in
  virtual std::size_t apply(std::span<Candidate> candidates, std::size_t n_all) = 0;
};

/// What the chain reads for one row.
struct SamplerInput {
  std::span<const float> logits;           // [n_vocab], raw
  std::span<const SampleAdjust> adjust;    // this row's range; tokens outside the vocabulary are ignored
  std::span<const std::uint32_t> allowed;  // [ceil(n_vocab / 32)] bit mask, or empty: all tokens are allowed
  HostStage* host_stage = nullptr;         // null: SampleStage::host does nothing
};

/// Bytes of workspace for one row.
[[nodiscard]] std::size_t sampler_scratch_bytes(std::size_t n_vocab) noexcept;

/// Runs the sampler chain for one row and draws a token (docs/sampling.md has the mathematics).
///
/// Order: logit biases, the row's stages in their order, the draw. With a mask the chain runs over all tokens first; a
/// chosen token that the mask forbids is dropped, the forbidden tokens are set to -inf, and the chain runs once more.
/// Logits and probabilities are float; the draw sums in double. A token at -inf (or NaN) still counts as a candidate
/// where a stage counts them, but is never chosen. Order of candidates: by token until a stage sorts them (by falling
/// logit, ties to the lower token; the typical stage by its own score). The draw walks them in their current order and
/// takes the first whose running sum of exp(l - l_max) reaches uniform * total; a single candidate takes no random
/// number. Greedy takes the largest logit, ties to the lower token.
///
/// scratch  sampler_scratch_bytes(n_vocab) bytes, 16-byte aligned; nothing is allocated.
/// Cost: one pass over the logits and a heap of k elements when the chain starts with a small top-k; no full sort
/// unless a stage needs one. Thread-safe with scratch of one's own; noexcept but for what a host stage throws, which
/// ends the process.
void run_sampler_chain(const SampleRow& row, const SamplerInput& input, std::span<std::byte> scratch,
                       SampleResult& result) noexcept;

}  // namespace ggml
