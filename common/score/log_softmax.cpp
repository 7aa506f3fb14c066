#include "common/score/log_softmax.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "ggml/log.h"

namespace common {

LogSum log_sum_of(std::span<const float> logits) {
  const auto top = std::max_element(logits.begin(), logits.end());
  LogSum out{*top, 0, static_cast<llama::Token>(top - logits.begin())};
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - out.max));
  out.log_sum = std::log(sum);
  return out;
}

TokenScore score_token(std::span<const float> logits, llama::Token token) {
  const LogSum sum = log_sum_of(logits);
  const float logit = logits[static_cast<std::size_t>(token)];
  return {static_cast<double>(logit - sum.max) - sum.log_sum, sum.top};
}

void for_rows(int n_threads, int n, const std::function<void(int)>& body) {
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int i = next++; i < n; i = next++) body(i);
  };
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(std::max(n_threads, 1)));
  for (int i = 1; i < std::min(n_threads, n); ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
}

double Likelihood::perplexity() const {
  return std::exp(mean());
}

double Likelihood::mean_error() const {
  const double v = variance();
  return count > 1 && v > 0 ? std::sqrt(v / static_cast<double>(count - 1)) : 0;
}

void print_final_estimate(const Likelihood& likelihood, int chunks, int n_ctx) {
  if (likelihood.count < 2 || likelihood.variance() <= 0) {
    ggml::logf(ggml::LogLevel::error, "Unexpected negative standard deviation of log(prob)");
    return;
  }
  std::printf("Final estimate: PPL over %d chunks for n_ctx=%d = %.4lf +/- %.5lf\n", chunks, n_ctx,
              likelihood.perplexity(), likelihood.perplexity_error());
  std::fflush(stdout);
  ggml::logf(ggml::LogLevel::info, "Final estimate: PPL = %.4lf +/- %.5lf", likelihood.perplexity(),
             likelihood.perplexity_error());
}

}  // namespace common
