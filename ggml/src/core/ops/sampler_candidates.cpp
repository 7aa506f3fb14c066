#include "sampler_candidates.h"

namespace ggml::sampler {

float Candidates::max_logit() const {
  if (order == Order::by_logit && n_sorted > 0) return list[0].logit;
  float best = kNegInf;
  for (std::size_t i = 0; i < n; ++i) best = std::max(best, list[i].logit);
  return best;
}

float Candidates::sum_float(float max) const {
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += weight(list[i].logit, max);
  return sum;
}

double Candidates::sum_double(float max) const {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(weight(list[i].logit, max));
  return sum;
}

Candidate* Candidates::find(std::int32_t token) {
  Candidate* end = list + n;
  Candidate* at =
      order == Order::by_token
          ? std::lower_bound(list, end, token, [](const Candidate& c, std::int32_t t) { return c.token < t; })
          : std::find_if(list, end, [token](const Candidate& c) { return c.token == token; });
  return at != end && at->token == token ? at : nullptr;
}

void Candidates::sort_lazily() {
  if (order == Order::by_logit) return;
  order = Order::by_logit;
  n_sorted = 0;
}

void Candidates::sort_to(std::size_t end) {
  end = std::min(end, n);
  if (end <= n_sorted) return;
  sort_front(list + n_sorted, n - n_sorted, end - n_sorted, likelier);
  n_sorted = end;
}

void Candidates::sort_all() {
  sort_lazily();
  sort_to(n);
}

void Candidates::keep_first(std::size_t count) {
  n = std::min(n, count);
  n_sorted = std::min(n_sorted, n);
}

void Candidates::exclude_all_but_best() {
  if (n == 0) return;
  list[0] = *std::min_element(list, list + n, likelier);
  n_excluded += n - 1;
  n = 1;
  order = Order::by_logit;
  n_sorted = 1;
}

}  // namespace ggml::sampler
