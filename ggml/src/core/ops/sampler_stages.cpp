#include "sampler_stages.h"

namespace ggml::sampler {

namespace {

constexpr std::size_t kHeapLimit = 1024;  // larger selections go through nth_element

bool more_typical(const Scored& a, const Scored& b) {
  return a.score < b.score || (a.score == b.score && a.candidate.token < b.candidate.token);
}

std::size_t min_keep(const SampleRow& row) {
  return row.min_keep > 0 ? static_cast<std::size_t>(row.min_keep) : 0;
}

/// Calls change(adjustment, candidate) for the adjustments that `wanted` names, and takes out what fell to -inf.
template <class Wanted, class Change>
void change_some(std::span<const SampleAdjust> adjust, Candidates& c, Wanted wanted, Change change) {
  bool found = false;
  for (const SampleAdjust& a : adjust) {
    if (!wanted(a)) continue;
    // The order is lost, so what was promised of it has to be there first.
    if (!found && c.order == Order::by_logit) c.sort_all();
    found = true;
    if (Candidate* candidate = c.find(a.token)) change(a, *candidate);
  }
  if (!found) return;
  if (c.order == Order::by_logit) c.order = Order::other;
  c.exclude_if([](const Candidate& x) { return !(x.logit > kNegInf); });
}

void divide(float divisor, Candidates& c) {
  // A tiny temperature overflows: then the largest is all there is.
  if (divisor <= 0.0f || !std::isfinite(c.max_logit() / divisor)) return c.exclude_all_but_best();
  if (divisor == 1.0f) return;
  for (std::size_t i = 0; i < c.n; ++i) c.list[i].logit /= divisor;
}

/// -sum p ln p.
float entropy(const Candidates& c) {
  const float max = c.max_logit(), total = c.sum_float(max);
  float sum = 0;
  for (std::size_t i = 0; i < c.n; ++i) {
    const float p = weight(c.list[i].logit, max) / total;
    if (p > 0.0f) sum -= p * std::log(p);
  }
  return sum;
}

}  // namespace

void penalties(const SampleRow& row, std::span<const SampleAdjust> adjust, Candidates& c) {
  const bool off = row.repeat_penalty == 1.0f && row.frequency_penalty == 0.0f && row.presence_penalty == 0.0f;
  if (off) return;
  change_some(
      adjust, c, [](const SampleAdjust& a) { return a.count > 0; },
      [&row](const SampleAdjust& a, Candidate& x) {
        x.logit = x.logit <= 0.0f ? x.logit * row.repeat_penalty : x.logit / row.repeat_penalty;
        x.logit -= static_cast<float>(a.count) * row.frequency_penalty + row.presence_penalty;
      });
}

void dry(std::span<const SampleAdjust> adjust, Candidates& c) {
  change_some(
      adjust, c, [](const SampleAdjust& a) { return a.dry != 0.0f; },
      [](const SampleAdjust& a, Candidate& x) { x.logit -= a.dry; });
}

void top_n_sigma(const SampleRow& row, Candidates& c) {
  if (row.top_n_sigma <= 0.0f || c.n_all() <= 1) return;
  const float max = c.max_logit();
  double sum = 0;
  for (std::size_t i = 0; i < c.n; ++i) sum += static_cast<double>(c.list[i].logit);
  const double mean = sum / static_cast<double>(c.n);
  double squares = 0;
  for (std::size_t i = 0; i < c.n; ++i) {
    const double d = static_cast<double>(c.list[i].logit) - mean;
    squares += d * d;
  }
  const auto sigma = static_cast<float>(std::sqrt(squares / static_cast<double>(c.n)));
  const float bound = max - row.top_n_sigma * sigma;
  c.exclude_if([bound](const Candidate& x) { return x.logit < bound; });
}

void top_k(const SampleRow& row, Candidates& c) {
  if (row.top_k <= 0) return;
  const std::size_t wanted = std::min(static_cast<std::size_t>(row.top_k), c.n_all());
  const std::size_t k = std::min(wanted, c.n);
  if (c.order != Order::by_logit && k <= kHeapLimit && k < c.n) {
    // The heap grows at the front of the list, over candidates that were already taken in.
    select_likeliest(c.n, k, c.list, [&c](std::size_t i) { return c.list[i]; });
    c.order = Order::by_logit;
    c.n_sorted = k;
  } else {
    c.sort_lazily();
    c.sort_to(k);
  }
  c.keep_first(k);
  c.n_excluded = wanted - k;
}

void typical(const SampleRow& row, Candidates& c) {
  if (row.typical_p >= 1.0f) return;
  const float max = c.max_logit(), total = c.sum_float(max);
  float mean_surprise = 0;
  for (std::size_t i = 0; i < c.n; ++i) {
    const float p = weight(c.list[i].logit, max) / total;
    const float surprise = -std::log(p);
    c.scored[i] = {surprise, p, c.list[i]};
    if (p > 0.0f) mean_surprise += p * surprise;
  }
  for (std::size_t i = 0; i < c.n; ++i) c.scored[i].score = std::fabs(c.scored[i].score - mean_surprise);
  float cumulative = 0;
  std::size_t sorted = 0, kept = c.n;
  for (std::size_t i = 0; i < c.n; ++i) {
    if (i == sorted) {
      const std::size_t end = std::min(c.n, next_sorted(sorted));
      sort_front(c.scored + sorted, c.n - sorted, end - sorted, more_typical);
      sorted = end;
    }
    cumulative += c.scored[i].p;
    if (cumulative > row.typical_p && i + 1 >= min_keep(row)) {
      kept = i + 1;
      c.n_excluded = 0;
      break;
    }
  }
  c.n = kept;
  for (std::size_t i = 0; i < kept; ++i) c.list[i] = c.scored[i].candidate;
  c.order = Order::other;
}

void top_p(const SampleRow& row, Candidates& c) {
  if (row.top_p >= 1.0f) return;
  const float max = c.max_logit(), total = c.sum_float(max);
  c.sort_lazily();
  float cumulative = 0;
  for (std::size_t i = 0; i < c.n; ++i) {
    c.reach(i);
    cumulative += weight(c.list[i].logit, max) / total;
    if (cumulative >= row.top_p && i + 1 >= min_keep(row)) {
      c.keep_first(i + 1);
      c.n_excluded = 0;
      return;
    }
  }
}

void min_p(const SampleRow& row, Candidates& c) {
  if (row.min_p <= 0.0f) return;
  const float bound = c.max_logit() + std::log(row.min_p);
  const auto passing = static_cast<std::size_t>(
      std::count_if(c.list, c.list + c.n, [bound](const Candidate& x) { return x.logit >= bound; }));
  if (passing >= min_keep(row) && passing > 0) {
    c.drop_if([bound](const Candidate& x) { return !(x.logit >= bound); });
    c.n_excluded = 0;
    return;
  }
  c.sort_all();
  const std::size_t kept = std::min(c.n_all(), std::max({min_keep(row), passing, std::size_t{1}}));
  c.keep_first(kept);
  c.n_excluded = kept - c.n;
}

void tail_free(const SampleRow& row, Candidates& c) {
  // Candidates at -inf continue the curve with zeros; two of them are all that can bend it.
  const std::size_t n = std::min(c.n_all(), c.n + 2);
  if (row.tfs_z >= 1.0f || n < 3) return;
  const float max = c.max_logit(), total = c.sum_float(max);
  c.sort_all();
  const auto p = [&](std::size_t i) { return i < c.n ? weight(c.list[i].logit, max) / total : 0.0f; };
  const auto second = [&](std::size_t i) { return std::fabs((p(i) - p(i + 1)) - (p(i + 1) - p(i + 2))); };
  double sum = 0;
  for (std::size_t i = 0; i + 2 < n; ++i) sum += static_cast<double>(second(i));
  if (!(sum > 0)) return;  // a straight line has no tail
  double running = 0;
  for (std::size_t i = 0; i + 2 < n; ++i) {
    running += static_cast<double>(second(i)) / sum;
    if (running > static_cast<double>(row.tfs_z) && i >= std::max(min_keep(row), std::size_t{1})) {
      c.keep_first(i);
      c.n_excluded = 0;
      return;
    }
  }
}

void exclude_top_choices(const SampleRow& row, Candidates& c) {
  const float max = c.max_logit(), total = c.sum_float(max);
  c.sort_lazily();
  std::size_t run = 0;
  for (; run < c.n; ++run) {
    c.reach(run);
    if (weight(c.list[run].logit, max) / total < row.xtc_threshold) break;
  }
  const std::size_t gone = run > 0 ? run - 1 : 0;
  if (gone == 0 || c.n_all() - gone < min_keep(row)) return;
  std::copy(c.list + gone, c.list + c.n, c.list);
  c.n -= gone;
  c.n_sorted -= gone;
}

void temperature(const SampleRow& row, Candidates& c) {
  if (!(row.dynatemp_range > 0.0f)) return divide(row.temperature, c);
  if (c.n_all() <= 1) return;
  const float low = std::max(0.0f, row.temperature - row.dynatemp_range);
  const float high = row.temperature + row.dynatemp_range;
  const float normalised = entropy(c) / std::log(static_cast<float>(c.n_all()));
  divide(low + (high - low) * std::pow(normalised, row.dynatemp_exponent), c);
  c.sort_lazily();  // the other engine's softmax leaves them so, and the draw walks them in that order
}

}  // namespace ggml::sampler
