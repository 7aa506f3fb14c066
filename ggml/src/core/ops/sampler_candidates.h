#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "ggml/sampler_chain.h"

namespace ggml::sampler {

inline constexpr float kNegInf = -std::numeric_limits<float>::infinity();

/// A candidate during the typical stage.
struct Scored {
  float score;  // |-ln p - H|
  float p;
  Candidate candidate;
};

[[nodiscard]] inline bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// exp(l - max), also where both are infinite.
[[nodiscard]] inline float weight(float logit, float max) {
  return logit == max ? 1.0f : std::exp(logit - max);
}

/// Moves the k first of [first, first + n) in the order of `before` to the front, sorted.
template <class T, class Before>
void sort_front(T* first, std::size_t n, std::size_t k, Before before) {
  k = std::min(k, n);
  if (k < n) std::nth_element(first, first + k, first + n, before);
  std::sort(first, first + k, before);
}

/// How far to sort next when `sorted` elements were not enough: few are wanted as a rule, and each step costs a pass
/// over the rest.
[[nodiscard]] inline std::size_t next_sorted(std::size_t sorted) {
  constexpr std::size_t kFirst = 64;
  return std::max(kFirst, 8 * sorted);
}

/// The k likeliest of `get(0) .. get(n - 1)` in `heap`, sorted. Most elements fail one comparison with the heap's
/// worst.
template <class Get>
std::size_t select_likeliest(std::size_t n, std::size_t k, Candidate* heap, Get get) {
  std::size_t held = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Candidate c = get(i);
    if (held < k) {
      heap[held++] = c;
      if (held == k) std::make_heap(heap, heap + k, likelier);  // the worst on top
    } else if (likelier(c, heap[0])) {
      std::pop_heap(heap, heap + k, likelier);
      heap[k - 1] = c;
      std::push_heap(heap, heap + k, likelier);
    }
  }
  std::sort(heap, heap + held, likelier);
  return held;
}

enum class Order : std::uint8_t {
  by_token,
  by_logit,  // falling; only the first n_sorted lie so in memory, the later ones are less likely but in any order
  other
};

/// The candidates of one row in caller's memory. Tokens at -inf are not stored but counted, because some stages depend
/// on the number of candidates.
struct Candidates {
  Candidate* list = nullptr;  // [n_vocab]
  Scored* scored = nullptr;   // [n_vocab], workspace
  std::size_t n = 0;          // in the list
  std::size_t n_excluded = 0;
  std::size_t n_sorted = 0;  // Order::by_logit
  Order order = Order::by_token;

  [[nodiscard]] std::size_t n_all() const { return n + n_excluded; }
  [[nodiscard]] float max_logit() const;
  /// Sums of exp(l - max): in float, as the softmax of a stage has it, and in double, for the draw.
  [[nodiscard]] float sum_float(float max) const;
  [[nodiscard]] double sum_double(float max) const;
  /// Null when the token is no candidate.
  [[nodiscard]] Candidate* find(std::int32_t token);

  /// Order::by_logit; what is needed of it is sorted by reach().
  void sort_lazily();
  /// Pre: i < n. Makes list[i] the right one of Order::by_logit; nothing to do in other orders.
  void reach(std::size_t i) {
    if (order == Order::by_logit && i >= n_sorted) sort_to(next_sorted(i));
  }
  void sort_all();
  void sort_to(std::size_t end);
  void keep_first(std::size_t count);
  /// All but the likeliest go to -inf.
  void exclude_all_but_best();

  /// Takes out what `dropped` says; returns how many.
  template <class F>
  std::size_t drop_if(F&& dropped) {
    std::size_t kept = 0, kept_sorted = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (dropped(list[i])) continue;
      list[kept++] = list[i];
      if (i < n_sorted) kept_sorted = kept;
    }
    const std::size_t gone = n - kept;
    n = kept;
    n_sorted = kept_sorted;
    return gone;
  }
  /// The same, but they stay candidates at -inf.
  template <class F>
  void exclude_if(F&& excluded) {
    n_excluded += drop_if(excluded);
  }
};

}  // namespace ggml::sampler
