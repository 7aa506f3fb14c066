#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llama/types.h"

namespace perplexity {

/// What two predictions of one position have in common.
struct PositionDivergence {
  double log_p = 0, log_p_base = 0;  // of the true token
  double kl = 0;                     // sum of p (log p - log q), p the base
  double dp = 0;                     // q - p of the true token
  bool same_top = false;
};

/// Compares logits [n_vocab] with the base's log-probabilities [n_vocab]. Base entries below exp(-16) do not count.
[[nodiscard]] PositionDivergence compare(std::span<const float> logits, std::span<const float> base_log_p,
                                         llama::Token token);

/// A value and its standard error.
struct Estimate {
  double value = 0, error = 0;
};

/// Running statistics over positions, and the reports that llama.cpp prints of them.
class DivergenceStats {
 public:
  void add(const PositionDivergence& position);
  [[nodiscard]] std::size_t count() const { return kl_.size(); }
  [[nodiscard]] Estimate perplexity() const;
  [[nodiscard]] Estimate base_perplexity() const;
  [[nodiscard]] Estimate log_ratio() const;  // ln(PPL(Q)/PPL(base))
  [[nodiscard]] Estimate kl() const;
  [[nodiscard]] Estimate dp_rms() const;
  [[nodiscard]] Estimate same_top() const;

  /// One line of the running table, and its head.
  [[nodiscard]] static std::string table_head();
  [[nodiscard]] std::string table_row(int chunk) const;
  /// The three blocks at the end.
  [[nodiscard]] std::string report() const;

 private:
  struct Sums {
    double sum = 0, squares = 0;
    void add(double x) {
      sum += x;
      squares += x * x;
    }
  };
  [[nodiscard]] Estimate mean_of(const Sums& sums) const;
  [[nodiscard]] double covariance() const;  // of the two means of nll
  [[nodiscard]] std::string perplexity_report() const;
  [[nodiscard]] std::string kl_report() const;
  [[nodiscard]] std::string probability_report() const;

  Sums nll_, nll_base_, kl_sums_, dp_, dp2_;
  double nll_product_ = 0;
  std::size_t n_same_top_ = 0;
  std::vector<float> kl_, dps_;
};

/// Fraction `f` of sorted values: position f (n - 1), interpolated.
[[nodiscard]] float percentile(std::span<const float> sorted, double f);

}  // namespace perplexity
