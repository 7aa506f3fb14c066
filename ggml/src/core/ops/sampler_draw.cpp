#include "sampler_draw.h"

namespace ggml::sampler {

namespace {

double next_uniform(const SampleRow& row, SampleResult& result) {
  return row.uniform[std::min(result.n_uniform++, 1)];
}

/// The first candidate, in the present order, whose running sum of probabilities reaches a random number.
std::size_t draw_plain(const SampleRow& row, Candidates& c, SampleResult& result) {
  if (c.n_all() <= 1) return 0;
  const float max = c.max_logit();
  const double target = next_uniform(row, result) * c.sum_double(max);
  double running = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < c.n; ++i) {
    c.reach(i);
    const auto w = static_cast<double>(weight(c.list[i].logit, max));
    if (w <= 0) continue;
    running += w;
    last = i;
    if (running >= target) break;
  }
  return last;
}

/// The same as draw_plain() but for the rounding: float probabilities that are normalised again in double.
std::size_t draw_discrete(const SampleRow& row, Candidates& c, SampleResult& result) {
  if (c.n_all() <= 1) return 0;
  const float max = c.max_logit(), total = c.sum_float(max);
  double sum = 0;
  for (std::size_t i = 0; i < c.n; ++i) sum += static_cast<double>(weight(c.list[i].logit, max) / total);
  const double target = next_uniform(row, result);
  double running = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < c.n; ++i) {
    c.reach(i);
    const auto p = static_cast<double>(weight(c.list[i].logit, max) / total);
    if (p <= 0) continue;
    running += p / sum;
    last = i;
    if (running >= target) break;
  }
  return last;
}

/// How many candidates keep the expected surprise at mu when their probabilities follow Zipf's law, whose exponent is
/// estimated from the likeliest hundred.
std::size_t mirostat1_size(float mu, std::size_t n_vocab, Candidates& c) {
  constexpr std::size_t kSample = 100;
  const std::size_t m = std::min(kSample, c.n);
  if (m < kSample && c.n_excluded > 0) return 1;  // ln(p / 0) among the first: an infinite exponent
  c.sort_to(m);
  float num = 0, den = 0;
  for (std::size_t i = 0; i + 1 < m; ++i) {
    const float t = std::log(static_cast<float>(i + 2) / static_cast<float>(i + 1));
    num += t * (c.list[i].logit - c.list[i + 1].logit);  // ln (p_i / p_i+1)
    den += t * t;
  }
  const float s = num / den, eps = s - 1.0f;
  const float base = (eps * std::exp2(mu)) / (1.0f - std::pow(static_cast<float>(n_vocab), -eps));
  const float k = std::pow(base, 1.0f / s);
  if (!(k >= 1.0f)) return 1;  // also where the sample was too small or too even for an estimate
  return k >= static_cast<float>(c.n) ? c.n : static_cast<std::size_t>(k);
}

std::size_t draw_mirostat(const SampleRow& row, std::size_t n_vocab, Candidates& c, SampleResult& result) {
  const float mu = result.mirostat_mu;
  c.sort_lazily();
  std::size_t kept = c.n;
  if (row.draw == SampleDraw::mirostat1) {
    kept = mirostat1_size(mu, n_vocab, c);
    c.sort_to(kept);
  } else {
    const float max = c.max_logit(), total = c.sum_float(max);
    for (std::size_t i = 0; i < c.n; ++i) {
      c.reach(i);
      if (-std::log2(weight(c.list[i].logit, max) / total) <= mu) continue;
      kept = std::max(i, std::size_t{1});
      break;
    }
  }
  if (kept < c.n) c.n_excluded = 0;
  c.keep_first(kept);
  const std::size_t chosen = draw_discrete(row, c, result);
  const float max = c.max_logit();
  const float surprise = -std::log2(weight(c.list[chosen].logit, max) / c.sum_float(max));
  result.mirostat_mu = mu - row.mirostat_eta * (surprise - row.mirostat_tau);
  return chosen;
}

std::size_t draw_adaptive(const SampleRow& row, Candidates& c, SampleResult& result) {
  constexpr float kPeak = 5.0f, kSharpness = 10.0f, kWidth = 0.3f;
  const float max = c.max_logit(), total = c.sum_float(max);
  const auto probability = [&](float logit) { return weight(logit, max) / total; };
  if (row.adaptive_target < 0.0f) {
    const std::size_t chosen = draw_discrete(row, c, result);
    result.adaptive_p = probability(c.list[chosen].logit);
    return chosen;
  }
  c.sort_to(c.order == Order::by_logit ? c.n : 0);  // the order of the probabilities as they were
  for (std::size_t i = 0; i < c.n; ++i) {
    const float p = probability(c.list[i].logit);
    const float x = std::fabs(p - row.adaptive_target) / kWidth;
    c.scored[i].p = p;
    c.list[i].logit = kPeak - kSharpness * x * x / (1.0f + x);
  }
  c.order = Order::other;
  const std::size_t chosen = draw_discrete(row, c, result);
  const float new_max = c.max_logit();
  result.adaptive_p =
      row.adaptive_new != 0 ? weight(c.list[chosen].logit, new_max) / c.sum_float(new_max) : c.scored[chosen].p;
  return chosen;
}

}  // namespace

std::size_t draw(const SampleRow& row, std::size_t n_vocab, Candidates& c, SampleResult& result) {
  if (c.n == 0) return 0;
  switch (row.draw) {
    case SampleDraw::mirostat1:
    case SampleDraw::mirostat2:
      return draw_mirostat(row, n_vocab, c, result);
    case SampleDraw::adaptive:
      return draw_adaptive(row, c, result);
    case SampleDraw::plain:
      break;
  }
  return draw_plain(row, c, result);
}

}  // namespace ggml::sampler
