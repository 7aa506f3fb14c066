#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <vector>

#include "ggml/sample_row.h"
#include "llama/sampling.h"
#include "llama/types.h"

namespace llama {

class Vocab;

/// Allowed tokens of the next step as a bit mask; common/grammar implements it. Bit t of word t / 32 set = allowed.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  /// Fills `words` [ceil(n_vocab / 32)]; false: everything is allowed and nothing was written.
  virtual bool fill(std::span<std::uint32_t> words) = 0;
  virtual void accept(Token token) = 0;
};

/// The sampling state of one request: parameters, generator, penalty window. The `sample` op does the arithmetic; this
/// class prepares its rows and takes note of the outcome. Thread-compatible.
class Sampler {
 public:
  /// Throws Error(invalid_argument) naming the parameter and its allowed range.
  Sampler(const SamplingParams& params, const Vocab& vocab, int n_ctx);

  /// Tokens that count for the penalties: the prompt first, then each accepted token.
  void accept(Token token);
  void accept_prompt(std::span<const Token> tokens);
  void set_mask(TokenMask* mask) { mask_ = mask; }  // not owned
  [[nodiscard]] TokenMask* mask() const { return mask_; }
  /// Fills the row (but logits_row, adjust range and mask_row, which the step assigns), draws one uniform number and
  /// appends the sparse adjustments.
  void prepare(ggml::SampleRow& row, std::vector<ggml::SampleAdjust>& adjust);
  [[nodiscard]] const SamplingParams& params() const { return params_; }
  [[nodiscard]] std::uint32_t seed() const { return seed_; }  // the seed in use, also when it was drawn

 private:
  SamplingParams params_;
  std::uint32_t seed_;
  std::mt19937 generator_;
  std::deque<Token> window_;
  std::size_t window_max_;
  TokenMask* mask_ = nullptr;
};

}  // namespace llama
