#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
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
  /// Why no token is allowed any more, for the user; empty when nothing went wrong.
  [[nodiscard]] virtual std::string failure() const { return {}; }
};

/// The sampling state of one request: parameters, generator, penalty window. The `sample` op does the arithmetic; this
/// class prepares its rows and takes note of the outcome. Thread-compatible.
class Sampler {
 public:
  /// Throws Error(invalid_argument) naming the parameter and its allowed range.
  Sampler(const SamplingParams& params, const Vocab& vocab, int n_ctx);

  /// Tokens that count for the penalties: the prompt first, then each token that was kept (the caller decides: a token
  /// taken back is not accepted). An accepted token also advances the mask; tokens of the prompt do not.
  void accept(Token token);
  void accept_prompt(std::span<const Token> tokens);
  void set_mask(TokenMask* mask) { mask_ = mask; }  // not owned
  [[nodiscard]] TokenMask* mask() const { return mask_; }
  /// Fills the row (but logits_row, adjust range and mask_row, which the step assigns), draws one uniform number and
  /// appends the sparse adjustments, each token once. Allocates nothing while `adjust` has capacity.
  void prepare(ggml::SampleRow& row, std::vector<ggml::SampleAdjust>& adjust);
  [[nodiscard]] const SamplingParams& params() const { return params_; }
  [[nodiscard]] std::uint32_t seed() const { return seed_; }  // the seed in use, also when it was drawn

 private:
  void remember(Token token);

  SamplingParams params_;
  std::uint32_t seed_;
  std::mt19937 generator_;
  ggml::SampleRow row_{};                 // what is the same for every token
  std::vector<ggml::SampleAdjust> bias_;  // one entry per biased token, ascending
  bool penalties_ = false;
  std::vector<std::int32_t> counts_;  // [n_vocab] occurrences in the window; empty without penalties
  std::vector<Token> window_;         // a ring of the last tokens; empty without penalties
  std::size_t window_begin_ = 0;
  std::size_t window_size_ = 0;
  TokenMask* mask_ = nullptr;
};

}  // namespace llama
