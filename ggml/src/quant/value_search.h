#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "quant/search.h"

/// The search for types whose weights are d * factor * value: a scale d per block or row, a small integer factor and a
/// choice of table per unit of 16 or 32 weights, and a code per weight.
///
/// A Book says how the codes of a unit are chosen:
///   static constexpr int kUnit, kSets;             weights of a unit, tables to choose from
///   static constexpr float kSpread;                how far trial scales stray from the obvious one, as a share of it
///   static int least(int set), most(int set)       the table's ends
///   static int value(const uint8_t* q, int i, int set)          what weight i of a coded unit stands for
///   kPositive, if declared                         scales are never negative
///   kEitherSign, if declared                       the sign of a factor means nothing
///   kFewTrials, if declared                        whether assign() is dear
///   static float share(float t), if declared       the trials instead of 1 + kSpread * t, t in [-1, 1]
///   static void assign(const float* x, const float* w, float inverse, int set, uint8_t* q)   codes for inverse * x
namespace ggml::quant {

/// Where the values of a table change over: codes nearest to a number without a search.
template <const std::int8_t* Values, int Count>
struct NearestValue {
  std::uint8_t above[257] = {};  // [v + 128]: how many values are at most v
  constexpr NearestValue() {
    for (int v = -128; v <= 128; ++v) {
      int n = 0;
      while (n < Count && Values[n] <= v) ++n;
      above[v + 128] = static_cast<std::uint8_t>(n);
    }
  }
  [[nodiscard]] std::uint8_t operator()(float v) const {
    if (!(v > Values[0])) return 0;
    if (!(v < Values[Count - 1])) return static_cast<std::uint8_t>(Count - 1);
    const int i = above[static_cast<int>(std::floor(v)) + 128];  // Values[i - 1] <= v < Values[i]
    return static_cast<std::uint8_t>(v - Values[i - 1] < Values[i] - v ? i - 1 : i);
  }
};

/// Plain tables: every code is chosen by itself.
template <const std::int8_t* Values, int Count, int Sets, int Unit>
struct ScalarBook {
  static constexpr int kUnit = Unit, kSets = Sets;
  static constexpr float kSpread = Count <= 4 ? 0.5f : Count <= 8 ? 0.3f : Count <= 16 ? 0.12f : 0.06f;
  static int least(int set) { return Values[set * Count]; }
  static int most(int set) { return Values[set * Count + Count - 1]; }
  static int value(const std::uint8_t* q, int i, int set) { return Values[set * Count + q[i]]; }
  static void assign(const float* x, const float* /*w*/, float inverse, int set, std::uint8_t* q) {
    static constexpr NearestValue<Values, Count> kNearest;
    // The second table is the first one shifted up by the difference of their first values.
    const auto shift = static_cast<float>(Values[set * Count] - Values[0]);
    for (int i = 0; i < kUnit; ++i) q[i] = kNearest(inverse * x[i] - shift);
  }
};

/// What a unit was coded with.
struct UnitCode {
  float scale = 0;  // before it is made a multiple of d
  int factor = 0;
  int index = 0;  // of the factor
  int set = 0;
};

/// The factors a format can store: least, least + step, .. most, or those of a list in ascending order.
struct Factors {
  int least, most, step;
  const std::int8_t* list = nullptr;
  [[nodiscard]] int count() const { return (most - least) / step + 1; }
  [[nodiscard]] int at(int index) const { return list != nullptr ? list[index] : least + step * index; }
  [[nodiscard]] int end() const { return -at(0) > at(count() - 1) ? at(0) : at(count() - 1); }
  /// Index of the factor nearest to v.
  [[nodiscard]] int nearest(float v) const {
    const int last = count() - 1;
    if (list == nullptr) {
      const int i = nint((v - static_cast<float>(least)) / static_cast<float>(step));
      return i < 0 ? 0 : i > last ? last : i;
    }
    int i = 0;
    while (i < last && v - static_cast<float>(list[i]) > static_cast<float>(list[i + 1]) - v) ++i;
    return i;
  }
  [[nodiscard]] bool has(int index) const { return index >= 0 && index < count(); }
};
/// All entries of a table as factors.
[[nodiscard]] constexpr Factors factors_of(const std::int8_t* list, int count) {
  return {0, count - 1, 1, list};
}

template <class Book>
class ValueSearch {
 public:
  /// `n` weights (whole units), their weights in the error's sum; codes go to `q`.
  ValueSearch(const float* x, const float* w, std::int64_t n, std::uint8_t* q)
      : x_(x), w_(w), q_(q), units_(static_cast<std::size_t>(n / Book::kUnit)) {}

  [[nodiscard]] const std::vector<UnitCode>& units() const { return units_; }

  /// Chooses every unit's scale and table by themselves. Returns the scale of greatest magnitude.
  float fit_units() {
    float extreme = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      fit_unit(u);
      if (std::fabs(units_[u].scale) > std::fabs(extreme)) extreme = units_[u].scale;
    }
    return extreme;
  }

  /// Chooses d, then factors, tables and codes for it. `store` rounds d to what the file keeps.
  template <class Store>
  float fit(const Factors& factors, Store store) {
    const float extreme = fit_units();
    if (!(std::fabs(extreme) > 1e-30f)) return 0;
    const int end = factors.end();
    const float start = extreme / static_cast<float>(end);
    // Around the d that gives the largest unit the largest factor: all units' factors are rounded, so others may fit
    // better together.
    float best_d = start, least = -1;
    for (int trial = -kScaleTrials; trial <= kScaleTrials; ++trial) {
      const float d = store(start * (1 + static_cast<float>(trial) / static_cast<float>(3 * std::abs(end) + 12)));
      const float error = d != 0 ? choose(d, factors, false) : -1;
      if (error >= 0 && (least < 0 || error < least)) {
        least = error;
        best_d = d;
      }
    }
    least = choose(best_d, factors, true);
    for (int round = 0; round < kRounds; ++round) {
      const float refined = store(refit(best_d));
      const float error = refined != 0 && refined != best_d ? choose(refined, factors, true) : least;
      if (!(error < least)) break;
      least = error;
      best_d = refined;
    }
    choose(best_d, factors, true);  // the last trial may have been a worse one
    return best_d;
  }

 private:
  static constexpr bool kPositive = requires { Book::kPositive; };
  static constexpr bool kSlow = requires { Book::kEitherSign; };
  /// Fewer where each one is a search of its own.
  static constexpr int trials(int many, int few) {
    if constexpr (requires { Book::kFewTrials; }) return Book::kFewTrials ? few : many;
    return many;
  }
  static constexpr int kTrials = trials(9, 3);  // to either side
  static constexpr int kScaleTrials = trials(4, 1);
  /// How far from the nearest factor the chosen one may be. Where codes are random every other scale is another chance.
  static constexpr int kNear = kSlow ? trials(4, 1) : 1;
  static constexpr int kRounds = 3;  // of fitting d and factors to each other

  /// What the obvious inverse scale is multiplied by; t in [-1, 1].
  static float share_of(float t) {
    if constexpr (requires { Book::share(t); }) {
      return Book::share(t);
    } else {
      return 1 + Book::kSpread * t;
    }
  }

  void fit_unit(std::size_t u) {
    const float* x = x_ + u * Book::kUnit;
    const float* w = w_ + u * Book::kUnit;
    UnitCode best;
    const float extreme = signed_max(x, Book::kUnit);
    if (!(std::fabs(extreme) > 1e-15f) || !std::isfinite(extreme)) {
      units_[u] = best;
      return;
    }
    float gain = 0;
    std::uint8_t q[Book::kUnit];
    for (int set = 0; set < Book::kSets; ++set) {
      for (const bool at_most : {false, true}) {
        if (kPositive && !at_most) continue;
        const auto end = static_cast<float>(at_most ? Book::most(set) : Book::least(set));
        for (int s = -kTrials; s <= kTrials; ++s) {
          const float share = share_of(static_cast<float>(s) / static_cast<float>(kTrials));
          Book::assign(x, w, end * share / (kPositive ? std::fabs(extreme) : extreme), set, q);
          float xv = 0, vv = 0;
          for (int i = 0; i < Book::kUnit; ++i) {
            const auto v = static_cast<float>(Book::value(q, i, set));
            xv += w[i] * x[i] * v;
            vv += w[i] * v * v;
          }
          if (!(vv > 0 && xv * xv > gain * vv) || (kPositive && xv < 0)) continue;
          gain = xv * xv / vv;
          best = {xv / vv, 0, 0, set};
        }
      }
    }
    units_[u] = best;
  }

  [[nodiscard]] float error_of(std::size_t u, float scale, int set, const std::uint8_t* q) const {
    float error = 0;
    for (int i = 0; i < Book::kUnit; ++i) {
      const float diff =
          x_[u * Book::kUnit + static_cast<std::size_t>(i)] - scale * static_cast<float>(Book::value(q, i, set));
      error += w_[u * Book::kUnit + static_cast<std::size_t>(i)] * diff * diff;
    }
    return error;
  }

  /// Factors, tables and codes for d; `thorough`: all tables and the neighbouring factors too. Returns the error.
  float choose(float d, const Factors& factors, bool thorough) {
    float total = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      Choice choice{units_[u]};
      for (int set = 0; set < Book::kSets; ++set) {
        if (!thorough && set != units_[u].set) continue;
        const int centre = factors.nearest(units_[u].scale / d);
        const int near = thorough ? kNear : 0;
        for (int i = centre - near; i <= centre + near; ++i) consider(u, d, factors, {0, 0, i, set}, choice);
        if (!kSlow) continue;
        const int turned = factors.nearest(-units_[u].scale / d);
        for (int i = turned - near + 1; i < turned + near; ++i) consider(u, d, factors, {0, 0, i, set}, choice);
        if (near == 0) consider(u, d, factors, {0, 0, turned, set}, choice);
      }
      if (thorough) units_[u] = choice.code;
      total += choice.error > 0 ? choice.error : 0;
    }
    return total;
  }

  struct Choice {
    UnitCode code;
    float error = -1;
  };
  /// Codes unit u with one factor and table, and keeps that if it is the best so far.
  void consider(std::size_t u, float d, const Factors& factors, UnitCode code, Choice& best) {
    if (!factors.has(code.index)) return;
    const std::size_t at = u * Book::kUnit;
    const int factor = factors.at(code.index);
    const float scale = d * static_cast<float>(factor);
    std::uint8_t q[Book::kUnit];
    Book::assign(x_ + at, w_ + at, scale != 0 ? 1 / scale : 0, code.set, q);
    const float error = error_of(u, scale, code.set, q);
    if (best.error >= 0 && !(error < best.error)) return;
    best.error = error;
    best.code.factor = factor;
    best.code.index = code.index;
    best.code.set = code.set;
    for (int i = 0; i < Book::kUnit; ++i) q_[at + static_cast<std::size_t>(i)] = q[i];
  }

  /// The d that fits the factors and codes best.
  [[nodiscard]] float refit(float d) const {
    double xv = 0, vv = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const std::size_t at = u * Book::kUnit;
      for (int i = 0; i < Book::kUnit; ++i) {
        const auto j = at + static_cast<std::size_t>(i);
        const double v = units_[u].factor * Book::value(q_ + at, i, units_[u].set);
        xv += static_cast<double>(w_[j]) * static_cast<double>(x_[j]) * v;
        vv += static_cast<double>(w_[j]) * v * v;
      }
    }
    return vv > 0 && std::isfinite(xv / vv) ? static_cast<float>(xv / vv) : d;
  }

  const float* x_;
  const float* w_;
  std::uint8_t* q_;
  std::vector<UnitCode> units_;
};

}  // namespace ggml::quant
