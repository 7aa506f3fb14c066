#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "modes.h"

/// What the three kinds of questions share.
namespace perplexity {

/// A text whose end is to be scored.
struct Continuation {
  std::vector<llama::Token> tokens;
  int first = 1;  // the first token that is scored; at least 1
};

/// Scores continuations on one context.
class ContinuationScorer {
 public:
  explicit ContinuationScorer(const Run& run);
  /// log-probabilities of the tokens from `first` on, each given all before it. Throws Error(exceeds_limit) for a text
  /// that is longer than -c.
  [[nodiscard]] std::vector<std::vector<double>> score(std::span<const Continuation> texts);
  /// With BOS in front if the model wants it.
  [[nodiscard]] std::vector<llama::Token> tokenize(const std::string& text) const;

 private:
  const Run& run_;
  int n_ctx_ = 0, n_seq_ = 0;
  std::unique_ptr<llama::Context> context_;
  int threads_ = 1;
};

/// Number of leading tokens that all have in common; leaves at least one token of each to be scored.
[[nodiscard]] int common_prefix(std::span<const std::vector<llama::Token>> texts);

/// `n_wanted` of the numbers below n_total in random order, the same in every run; all in order if 0 or too many are
/// wanted.
[[nodiscard]] std::vector<std::size_t> choose_tasks(std::size_t n_total, std::size_t n_wanted);

[[nodiscard]] double mean_of(std::span<const double> values);

}  // namespace perplexity
