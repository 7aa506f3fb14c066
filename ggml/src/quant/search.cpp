#include "quant/search.h"

#include <algorithm>
#include <cmath>

namespace ggml::quant {
namespace {

constexpr float kNoise = 1e-15f;  // a block with nothing above it counts as zero
constexpr int kMaxBlock = 32;

/// Sums of a weighted least-squares fit of x ~ s * l.
struct Moments {
  float xl = 0, ll = 0;
  void add(float w, float x, float l) {
    xl += w * x * l;
    ll += w * l * l;
  }
  [[nodiscard]] bool better_than(float best) const { return ll > 0 && xl * xl > best * ll; }
};

}  // namespace

int nint(float v) noexcept {
  if (!(std::fabs(v) < 1e9f)) return v > 0 ? 1'000'000'000 : v < 0 ? -1'000'000'000 : 0;  // NaN: 0
  return static_cast<int>(std::nearbyint(v));
}

float signed_max(const float* x, int n) noexcept {
  float most = 0, value = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > most) {
      most = std::fabs(x[i]);
      value = x[i];
    }
  }
  return value;
}

float fit_symmetric(const float* x, const float* w, int n, int nmax, std::uint8_t* codes) noexcept {
  const float extreme = signed_max(x, n);
  if (!(std::fabs(extreme) >= kNoise)) {
    std::fill_n(codes, n, static_cast<std::uint8_t>(nmax));
    return 0;
  }
  const auto code = [&](float v) { return std::clamp(nint(v), -nmax, nmax - 1); };
  float best = 0, scale = 0, best_inverse = 0;
  for (int trial = 0; trial <= 18; ++trial) {
    const int step = trial == 0 ? 0 : (trial <= 9 ? trial - 10 : trial - 9);  // 0 first, then -9..-1, 1..9
    const float inverse = -(static_cast<float>(nmax) + 0.1f * static_cast<float>(step)) / extreme;
    Moments sums;
    for (int i = 0; i < n; ++i) sums.add(w[i], x[i], static_cast<float>(code(inverse * x[i])));
    if (trial == 0 || sums.better_than(best)) {
      scale = sums.ll > 0 ? sums.xl / sums.ll : 0;
      best = scale * sums.xl;
      best_inverse = inverse;
    }
  }
  for (int i = 0; i < n; ++i) codes[i] = static_cast<std::uint8_t>(code(best_inverse * x[i]) + nmax);
  return scale;
}

float fit_either_sign(const float* x, const float* w, int n, int nmax, std::uint8_t* codes) noexcept {
  float turned[kMaxBlock];
  for (int i = 0; i < n; ++i) turned[i] = -x[i];
  std::uint8_t other[kMaxBlock];
  const float scale = fit_symmetric(x, w, n, nmax, codes), minus = -fit_symmetric(turned, w, n, nmax, other);
  float error = 0, other_error = 0;
  for (int i = 0; i < n; ++i) {
    const float a = x[i] - scale * static_cast<float>(codes[i] - nmax);
    const float b = x[i] - minus * static_cast<float>(other[i] - nmax);
    error += w[i] * a * a;
    other_error += w[i] * b * b;
  }
  if (!(other_error < error)) return scale;
  std::copy_n(other, n, codes);
  return minus;
}

ScaleMin fit_with_min(const float* x, const float* w, int n, int nmax, const MinSearch& search,
                      std::uint8_t* codes) noexcept {
  float lo = x[0], hi = x[0], sum_w = w[0], sum_x = w[0] * x[0];
  for (int i = 1; i < n; ++i) {
    lo = std::min(lo, x[i]);
    hi = std::max(hi, x[i]);
    sum_w += w[i];
    sum_x += w[i] * x[i];
  }
  lo = std::min(lo, 0.0f);
  if (!(hi > lo)) {
    std::fill_n(codes, n, static_cast<std::uint8_t>(0));
    return {0, -lo};
  }
  const auto code = [&](float v) { return std::clamp(nint(v), 0, nmax); };
  const auto error_of = [&](float diff) { return search.absolute ? std::fabs(diff) : diff * diff; };
  const float top = static_cast<float>(nmax);
  float inverse = top / (hi - lo), scale = 1 / inverse, best = 0;
  for (int i = 0; i < n; ++i) {
    codes[i] = static_cast<std::uint8_t>(code(inverse * (x[i] - lo)));
    best += w[i] * error_of(scale * codes[i] + lo - x[i]);
  }
  const float start = lo;  // the trials all count from the first minimum
  float min = lo;
  std::uint8_t trial[kMaxBlock];
  for (int s = 0; s <= search.steps; ++s) {
    inverse = (search.first + search.step * static_cast<float>(s) + top) / (hi - start);
    float sum_l = 0, sum_ll = 0, sum_xl = 0;
    for (int i = 0; i < n; ++i) {
      trial[i] = static_cast<std::uint8_t>(code(inverse * (x[i] - min)));
      const float l = trial[i];
      sum_l += w[i] * l;
      sum_ll += w[i] * l * l;
      sum_xl += w[i] * l * x[i];
    }
    const float determinant = sum_w * sum_ll - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float this_min = (sum_ll * sum_x - sum_l * sum_xl) / determinant;
    if (this_min > 0) {
      this_min = 0;
      this_scale = sum_xl / sum_ll;
    }
    float error = 0;
    for (int i = 0; i < n; ++i) {
      error += w[i] * error_of(this_scale * trial[i] + this_min - x[i]);
    }
    if (error < best) {
      std::copy_n(trial, n, codes);
      best = error;
      scale = this_scale;
      min = this_min;
    }
  }
  return {scale, -min};
}

float fit_positive(const float* x, const float* w, int n, int nmax, std::uint8_t* codes) noexcept {
  const float most = *std::max_element(x, x + n);
  if (!(most >= kNoise)) {
    std::fill_n(codes, n, static_cast<std::uint8_t>(0));
    return 0;
  }
  const auto code = [&](float v) { return std::clamp(nint(v), 0, nmax); };
  float best_error = 0, inverse = 0;
  for (int trial = -1; trial <= 8; ++trial) {  // the plain scale first, then the shifted ones
    const float shift = trial < 0 ? 0 : 0.1f * static_cast<float>(trial - 4);
    const float candidate = (static_cast<float>(nmax) + shift) / most;
    float error = 0;
    for (int i = 0; i < n; ++i) {
      const float diff = x[i] - static_cast<float>(code(candidate * x[i])) / candidate;
      error += w[i] * diff * diff;
    }
    if (trial < 0 || error < best_error) {
      best_error = error;
      inverse = candidate;
    }
  }
  Moments sums;
  for (int i = 0; i < n; ++i) {
    codes[i] = static_cast<std::uint8_t>(code(inverse * x[i]));
    sums.add(w[i], x[i], codes[i]);
  }
  for (int round = 0; round < 5; ++round) {
    bool changed = false;
    for (int i = 0; i < n; ++i) {
      Moments rest = sums;
      rest.add(-w[i], x[i], codes[i]);
      if (!(rest.xl > 0 && rest.ll > 0)) continue;
      const int l = code(x[i] * rest.ll / rest.xl);
      if (l == codes[i]) continue;
      rest.add(w[i], x[i], static_cast<float>(l));
      if (!(rest.ll > 0 && rest.xl * rest.xl * sums.ll > sums.xl * sums.xl * rest.ll)) continue;
      codes[i] = static_cast<std::uint8_t>(l);
      sums = rest;
      changed = true;
    }
    if (!changed) break;
  }
  return sums.ll > 0 ? sums.xl / sums.ll : 0;
}

}  // namespace ggml::quant
