#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

/// The sampling state of one request: parameters, generators, penalty windows. The `sample` op does the arithmetic;
/// this class prepares its rows and takes note of the outcome. Chains with a stage that needs the texts of tokens
/// (infill) have no device form: on_host() says so, and sample_on_host() then takes the place of the op.
///
/// A step that failed changes nothing: it may be prepared again and draws the same numbers. Thread-compatible;
/// `vocab` must outlive it.
class Sampler {
 public:
  /// Throws Error(invalid_argument) naming the parameter and its allowed range.
  Sampler(const SamplingParams& params, const Vocab& vocab, int n_ctx);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  /// Tokens that count for the penalties: the prompt first, then each token that was kept (the caller decides: a token
  /// taken back is not accepted). An accepted token also advances the mask; tokens of the prompt do not.
  void accept(Token token);
  void accept_prompt(std::span<const Token> tokens);
  void set_mask(TokenMask* mask);  // not owned

  /// Fills the row (but logits_row, adjust range and mask_row, which the step assigns) with the parameters, the state
  /// and the next random numbers, and appends the sparse adjustments, each token once. Allocates nothing while
  /// `adjust` has capacity.
  void prepare(ggml::SampleRow& row, std::vector<ggml::SampleAdjust>& adjust);
  /// The mask of the row that was prepared last; false: everything is allowed and nothing was written. Where it leaves
  /// nothing but ends of generation, biases of -infinity against them (ignore_eos) are taken back in `adjust`, the
  /// row's adjustments: else no token could be chosen, and what the mask describes is complete.
  [[nodiscard]] bool fill_mask(std::span<std::uint32_t> words, std::span<ggml::SampleAdjust> adjust);
  /// Whether the row must not go to a device.
  [[nodiscard]] bool on_host() const;
  /// Pre: on_host(). The chain for one row of logits; `adjust` and `allowed` as the row names them.
  [[nodiscard]] ggml::SampleResult sample_on_host(const ggml::SampleRow& row, std::span<const float> logits,
                                                  std::span<const ggml::SampleAdjust> adjust,
                                                  std::span<const std::uint32_t> allowed);
  /// The outcome of the row that was prepared last: uses up its random numbers and keeps its state.
  void collect(const ggml::SampleResult& result);

  [[nodiscard]] const SamplingParams& params() const;
  [[nodiscard]] std::uint32_t seed() const;  // the seed in use, also when it was drawn

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llama
