#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "quant/grids.h"
#include "quant/value_search.h"

/// Codes that must form points of a grid, for ValueSearch: a group of 8 (or 4) levels is allowed when the grid has it.
namespace ggml::quant {

/// Where every combination of levels goes: to its own point of the grid, or to the points near it.
template <int Width, int Bits, std::size_t Count>
class GridLookup {
 public:
  /// Points within the `shells` smallest distances from a combination count as near.
  GridLookup(const Grid<Width, Count>& grid, const std::int8_t* alphabet, int levels, int shells) : levels_(levels) {
    at_.assign(std::size_t{1} << (Width * Bits), kUnused);
    points_.resize(Count * Width);
    for (std::size_t i = 0; i < Count; ++i) {
      std::uint8_t* point = points_.data() + i * Width;
      for (int j = 0; j < Width; ++j) {
        point[j] = static_cast<std::uint8_t>(std::find(alphabet, alphabet + levels, grid.at[i][j]) - alphabet);
      }
      at_[key(point)] = static_cast<std::int32_t>(i);
    }
    std::uint8_t combination[Width] = {};
    do {
      if (at_[key(combination)] == kUnused) add_near(combination, shells);
    } while (next(combination));
  }

  [[nodiscard]] static std::size_t key(const std::uint8_t* levels) {
    std::size_t k = 0;
    for (int j = 0; j < Width; ++j) k |= static_cast<std::size_t>(levels[j]) << Bits * j;
    return k;
  }
  /// The point with these levels. Pre: the grid has it.
  [[nodiscard]] std::uint16_t index(const std::uint8_t* levels) const {
    return static_cast<std::uint16_t>(at_[key(levels)]);
  }

  /// Replaces levels that are no point by the near point whose values are closest to v.
  void snap(const float* v, const float* w, const std::int8_t* alphabet, std::uint8_t* levels) const {
    const std::int32_t at = at_[key(levels)];
    if (at >= 0) return;
    const std::uint16_t* list = near_.data() + (-at - 2);
    float least = std::numeric_limits<float>::max();
    const std::uint8_t* best = points_.data() + std::size_t{list[1]} * Width;
    for (int n = 0; n < list[0]; ++n) {
      const std::uint8_t* point = points_.data() + std::size_t{list[1 + n]} * Width;
      float error = 0;
      for (int j = 0; j < Width; ++j) {
        const float diff = static_cast<float>(alphabet[point[j]]) - v[j];
        error += w[j] * diff * diff;
      }
      if (error < least) {
        least = error;
        best = point;
      }
    }
    std::copy_n(best, Width, levels);
  }

 private:
  static constexpr std::int32_t kUnused = -1;  // lists start at -2

  bool next(std::uint8_t* combination) const {
    for (int j = 0; j < Width; ++j) {
      if (++combination[j] < levels_) return true;
      combination[j] = 0;
    }
    return false;
  }

  void add_near(const std::uint8_t* combination, int shells) {
    constexpr int kFar = Width * 49 + 1;  // beyond every squared distance of 8 levels
    std::vector<std::uint16_t> distance(Count);
    bool seen[kFar] = {};
    for (std::size_t i = 0; i < Count; ++i) {
      int sum = 0;
      for (int j = 0; j < Width; ++j) {
        const int diff = points_[i * Width + static_cast<std::size_t>(j)] - combination[j];
        sum += diff * diff;
      }
      distance[i] = static_cast<std::uint16_t>(sum);
      seen[sum] = true;
    }
    int limit = 0;
    for (int left = shells; limit < kFar; ++limit) {
      if (seen[limit] && --left == 0) break;
    }
    at_[key(combination)] = -static_cast<std::int32_t>(near_.size()) - 2;
    const std::size_t count_at = near_.size();
    near_.push_back(0);
    for (std::size_t i = 0; i < Count; ++i) {
      if (distance[i] <= limit) near_.push_back(static_cast<std::uint16_t>(i));
    }
    near_[count_at] = static_cast<std::uint16_t>(near_.size() - count_at - 1);
  }

  int levels_;
  std::vector<std::int32_t> at_;      // by key: index of a point, or -2 - offset of a list in near_
  std::vector<std::uint16_t> near_;   // lists: count, points
  std::vector<std::uint8_t> points_;  // levels of the points
};

/// Magnitudes: x without signs. `G` names the grid: kGrid, kAlphabet, kLevels, kBits, kWidth, kShells.
template <class G, int Unit>
struct MagnitudeBook {
  static constexpr int kUnit = Unit, kSets = 1;
  static constexpr float kSpread = 0.24f;
  static constexpr bool kPositive = true;
  static int least(int /*set*/) { return G::kAlphabet[G::kLevels - 1]; }
  static int most(int /*set*/) { return G::kAlphabet[G::kLevels - 1]; }
  static int value(const std::uint8_t* q, int i, int /*set*/) { return G::kAlphabet[q[i]]; }
  static const auto& lookup() {
    static const GridLookup<G::kWidth, G::kBits, G::kCount> table(G::kGrid, G::kAlphabet, G::kLevels, G::kShells);
    return table;
  }
  static void assign(const float* x, const float* w, float inverse, int /*set*/, std::uint8_t* q) {
    static constexpr NearestValue<G::kAlphabet, G::kLevels> kNearest;
    const auto& table = lookup();
    for (int i = 0; i < kUnit; i += G::kWidth) {
      float v[G::kWidth];
      for (int j = 0; j < G::kWidth; ++j) {
        v[j] = inverse * x[i + j];
        q[i + j] = kNearest(v[j]);
      }
      table.snap(v, w + i, G::kAlphabet, q + i);
    }
  }
};

/// -1, 0, 1 with a shift of an eighth up or down per `Shifted` weights; values are in eighths. Table number: a bit per
/// shift, set for down.
template <class G, int Unit, int Shifted>
struct ShiftedBook {
  static constexpr int kUnit = Unit, kSets = 1 << (Unit / Shifted);
  static constexpr float kSpread = 0;  // see share()
  static constexpr bool kPositive = true;
  static int least(int /*set*/) { return 9; }
  static int most(int /*set*/) { return 9; }
  static int shift(int i, int set) { return (set >> i / Shifted) % 2 != 0 ? -1 : 1; }
  static int value(const std::uint8_t* q, int i, int set) { return 8 * (q[i] - 1) + shift(i, set); }
  /// Few values reach the ends: the best scale is a fraction of the largest value.
  static float share(float t) { return 2.3f + 1.5f * t; }
  static const auto& lookup() {
    static const GridLookup<G::kWidth, G::kBits, G::kCount> table(G::kGrid, G::kAlphabet, G::kLevels, G::kShells);
    return table;
  }
  static void assign(const float* x, const float* w, float inverse, int set, std::uint8_t* q) {
    const auto& table = lookup();
    for (int i = 0; i < kUnit; i += 8) {
      float v[8];
      for (int j = 0; j < 8; ++j) {
        v[j] = (inverse * x[i + j] - static_cast<float>(shift(i, set))) / 8;
        q[i + j] = static_cast<std::uint8_t>(v[j] < -0.5f ? 0 : v[j] < 0.5f ? 1 : 2);
      }
      table.snap(v, w + i, G::kAlphabet, q + i);
    }
  }
};

}  // namespace ggml::quant
