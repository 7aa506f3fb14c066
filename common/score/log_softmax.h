#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "llama/types.h"

/// What llama-perplexity and llama-imatrix share: reading a text in windows and judging predictions.
namespace common {

/// What one row of logits says about the next token.
struct TokenScore {
  double log_p = 0;      // natural logarithm of its probability
  llama::Token top = 0;  // the likeliest token, the first of equals
};

/// logits [n_vocab]; sums in double precision. Pre: `token` is one of them.
[[nodiscard]] TokenScore score_token(std::span<const float> logits, llama::Token token);

/// Natural logarithm of the sum of exp(logit), and the greatest logit.
struct LogSum {
  float max = 0;
  double log_sum = 0;  // of exp(logit - max)
  llama::Token top = 0;
};
[[nodiscard]] LogSum log_sum_of(std::span<const float> logits);

/// Calls body(i) for i of [0, n) on up to `n_threads` threads. Must not throw.
void for_rows(int n_threads, int n, const std::function<void(int)>& body);

/// Sums of negative log-likelihoods, and what follows from them.
struct Likelihood {
  double nll = 0, nll2 = 0;
  std::int64_t count = 0;

  void add(double log_p) {
    nll -= log_p;
    nll2 += log_p * log_p;
    ++count;
  }
  [[nodiscard]] double mean() const { return nll / static_cast<double>(count); }
  [[nodiscard]] double variance() const { return nll2 / static_cast<double>(count) - mean() * mean(); }
  [[nodiscard]] double perplexity() const;
  /// Standard error of mean(); 0 where it is not defined.
  [[nodiscard]] double mean_error() const;
  [[nodiscard]] double perplexity_error() const { return perplexity() * mean_error(); }
};

/// Prints "Final estimate: ..." as ik_llama.cpp has it to standard output, as llama.cpp has it to the log.
void print_final_estimate(const Likelihood& likelihood, int chunks, int n_ctx);

}  // namespace common
