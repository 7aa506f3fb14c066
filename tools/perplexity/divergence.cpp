#include "divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/score/log_softmax.h"

namespace perplexity {
namespace {

constexpr float kLeastLogP = -16;
constexpr double kPercent = 100;

std::string line(std::string_view label, double value, std::string_view unit = "") {
  return fmt::format("{}: {}\n", label,
                     unit.empty() ? fmt::format("{:10.6f}", value) : fmt::format("{:6.3f}{}", value, unit));
}

}  // namespace

PositionDivergence compare(std::span<const float> logits, std::span<const float> base_log_p, llama::Token token) {
  const common::LogSum sum = common::log_sum_of(logits);
  const auto at = static_cast<std::size_t>(token);
  PositionDivergence out;
  out.log_p = static_cast<double>(logits[at] - sum.max) - sum.log_sum;
  out.log_p_base = static_cast<double>(base_log_p[at]);
  const auto shift = static_cast<float>(static_cast<double>(sum.max) + sum.log_sum);
  llama::Token top = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float p_log = base_log_p[i];
    if (p_log > base_log_p[static_cast<std::size_t>(top)]) top = static_cast<llama::Token>(i);
    if (p_log > kLeastLogP) out.kl += static_cast<double>(std::exp(p_log) * (p_log - logits[i] + shift));
  }
  out.dp = std::exp(out.log_p) - std::exp(out.log_p_base);
  out.same_top = top == sum.top;
  return out;
}

float percentile(std::span<const float> sorted, double f) {
  if (f <= 0) return sorted.front();
  if (f >= 1) return sorted.back();
  const double position = f * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto part = static_cast<float>(position - static_cast<double>(below));
  return (1 - part) * sorted[below] + part * sorted[std::min(below + 1, sorted.size() - 1)];
}

void DivergenceStats::add(const PositionDivergence& p) {
  nll_.add(-p.log_p);
  nll_base_.add(-p.log_p_base);
  nll_product_ += p.log_p * p.log_p_base;
  kl_sums_.add(p.kl);
  dp_.add(p.dp);
  dp2_.add(p.dp * p.dp);
  n_same_top_ += p.same_top ? 1 : 0;
  kl_.push_back(static_cast<float>(p.kl));
  dps_.push_back(static_cast<float>(p.dp));
}

Estimate DivergenceStats::mean_of(const Sums& sums) const {
  constexpr double kFewest = 10;  // below, an error says nothing
  const auto n = static_cast<double>(count());
  Estimate out{sums.sum / n, 0};
  const double variance = sums.squares / n - out.value * out.value;
  if (n > kFewest && variance > 0) out.error = std::sqrt(variance / (n - 1));
  return out;
}

double DivergenceStats::covariance() const {
  const auto n = static_cast<double>(count());
  return n < 10 ? 0 : (nll_product_ / n - nll_.sum / n * nll_base_.sum / n) / (n - 1);
}

Estimate DivergenceStats::perplexity() const {
  const Estimate mean = mean_of(nll_);
  return {std::exp(mean.value), std::exp(mean.value) * mean.error};
}

Estimate DivergenceStats::base_perplexity() const {
  const Estimate mean = mean_of(nll_base_);
  return {std::exp(mean.value), std::exp(mean.value) * mean.error};
}

Estimate DivergenceStats::log_ratio() const {
  const Estimate one = mean_of(nll_);
  const Estimate base = mean_of(nll_base_);
  const double variance = one.error * one.error + base.error * base.error - 2 * covariance();
  return {one.value - base.value, std::sqrt(std::max(variance, 0.0))};
}

Estimate DivergenceStats::kl() const {
  return mean_of(kl_sums_);
}

Estimate DivergenceStats::dp_rms() const {
  const Estimate squares = mean_of(dp2_);
  const double rms = std::sqrt(squares.value);
  return {rms, rms > 0 ? 0.5 / rms * squares.error : 0};
}

Estimate DivergenceStats::same_top() const {
  const auto n = static_cast<double>(count());
  const double p = static_cast<double>(n_same_top_) / n;
  return {p, n > 1 ? std::sqrt(p * (1 - p) / (n - 1)) : 0};
}

std::string DivergenceStats::table_head() {
  return "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS     "
         "       Same top p\n";
}

std::string DivergenceStats::table_row(int chunk) const {
  const Estimate ppl = perplexity();
  const Estimate ratio = log_ratio();
  const Estimate divergence = kl();
  const Estimate rms = dp_rms();
  const Estimate top = same_top();
  return fmt::format(
      "{:4}    {:9.4f} ± {:9.4f}    {:10.5f} ± {:10.5f}    {:10.5f} ± {:10.5f}    {:6.3f} ± {:6.3f} %    {:6.3f} ± "
      "{:6.3f} %\n",
      chunk, ppl.value, ppl.error, ratio.value, ratio.error, divergence.value, divergence.error, kPercent * rms.value,
      kPercent * rms.error, kPercent * top.value, kPercent * top.error);
}

std::string DivergenceStats::perplexity_report() const {
  const Estimate ppl = perplexity();
  const Estimate base = base_perplexity();
  const Estimate ratio = log_ratio();
  const double errors = mean_of(nll_).error * mean_of(nll_base_).error;
  const double correlation = errors > 0 ? covariance() / errors : 0;
  const double quotient = std::exp(ratio.value);
  const double difference_variance =
      ppl.error * ppl.error + base.error * base.error - 2 * ppl.value * base.value * covariance();
  const auto row = [](std::string_view label, double value, double error) {
    return fmt::format("{}: {:10.6f} ± {:10.6f}\n", label, value, error);
  };
  return "====== Perplexity statistics ======\n" + row("Mean PPL(Q)                   ", ppl.value, ppl.error) +
         row("Mean PPL(base)                ", base.value, base.error) +
         fmt::format("Cor(ln(PPL(Q)), ln(PPL(base))): {:6.2f}%\n", kPercent * correlation) +
         row("Mean ln(PPL(Q)/PPL(base))     ", ratio.value, ratio.error) +
         row("Mean PPL(Q)/PPL(base)         ", quotient, quotient * ratio.error) +
         row("Mean PPL(Q)-PPL(base)         ", ppl.value - base.value, std::sqrt(std::max(difference_variance, 0.0)));
}

std::string DivergenceStats::kl_report() const {
  std::vector<float> sorted = kl_;
  std::sort(sorted.begin(), sorted.end());
  const auto row = [&](std::string_view label, double f) {
    return line(label, static_cast<double>(percentile(sorted, f)));
  };
  const Estimate mean = kl();
  return "====== KL divergence statistics ======\n" +
         fmt::format("Mean    KLD: {:10.6f} ± {:10.6f}\n", mean.value, mean.error) + row("Maximum KLD", 1) +
         row("99.9%   KLD", 0.999) + row("99.0%   KLD", 0.99) + row("95.0%   KLD", 0.95) + row("90.0%   KLD", 0.9) +
         row("Median  KLD", 0.5) + row("10.0%   KLD", 0.1) + row(" 5.0%   KLD", 0.05) + row(" 1.0%   KLD", 0.01) +
         row(" 0.1%   KLD", 0.001) + row("Minimum KLD", 0);
}

std::string DivergenceStats::probability_report() const {
  std::vector<float> sorted = dps_;
  std::sort(sorted.begin(), sorted.end());
  const auto row = [&](std::string_view label, double f) {
    return line(label, kPercent * static_cast<double>(percentile(sorted, f)), "%");
  };
  const auto with_error = [](std::string_view label, const Estimate& e) {
    return fmt::format("{}: {:6.3f} ± {:5.3f} %\n", label, kPercent * e.value, kPercent * e.error);
  };
  return "====== Token probability statistics ======\n" + with_error("Mean    Δp", mean_of(dp_)) +
         row("Maximum Δp", 1) + row("99.9%   Δp", 0.999) + row("99.0%   Δp", 0.99) + row("95.0%   Δp", 0.95) +
         row("90.0%   Δp", 0.9) + row("75.0%   Δp", 0.75) + row("Median  Δp", 0.5) + row("25.0%   Δp", 0.25) +
         row("10.0%   Δp", 0.1) + row(" 5.0%   Δp", 0.05) + row(" 1.0%   Δp", 0.01) + row(" 0.1%   Δp", 0.001) +
         row("Minimum Δp", 0) + with_error("RMS Δp    ", dp_rms()) + with_error("Same top p", same_top());
}

std::string DivergenceStats::report() const {
  return perplexity_report() + "\n" + kl_report() + "\n" + probability_report();
}

}  // namespace perplexity
