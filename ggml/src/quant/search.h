#pragma once

#include <cstdint>

/// The searches for scales that the quantisers share (the spec's section 7.2). All are deterministic.
namespace ggml::quant {

/// Nearest integer, ties to even.
[[nodiscard]] int nint(float v) noexcept;
/// The element of greatest magnitude (the first of equals), with its sign; +0 for zeros.
[[nodiscard]] float signed_max(const float* x, int n) noexcept;

/// Symmetric codes: finds s and integers l in [-nmax, nmax - 1] such that sum w (x - s l)^2 is small.
/// Returns s; `codes` [n] receives l + nmax. A block that is zero but for noise gives 0.
float fit_symmetric(const float* x, const float* w, int n, int nmax, std::uint8_t* codes) noexcept;

/// The same, but the element of greatest magnitude may also go to the positive end: the better of both.
float fit_either_sign(const float* x, const float* w, int n, int nmax, std::uint8_t* codes) noexcept;

/// How fit_with_min() walks: trials s = 0..steps with inverse scale (first + step * s + nmax) / range.
struct MinSearch {
  float first;
  float step;
  int steps;
  bool absolute = false;  // judge trials by their absolute errors, not by squares
};
struct ScaleMin {
  float scale;
  float min;  // >= 0: how much is subtracted
};
/// Codes with a minimum: x ~ scale * l - min, l in [0, nmax], least weighted squares. `codes` [n] receives l.
ScaleMin fit_with_min(const float* x, const float* w, int n, int nmax, const MinSearch& search,
                      std::uint8_t* codes) noexcept;

/// Non-negative numbers (block scales): x ~ s * l, l in [0, nmax]. Returns s; `codes` [n] receives l.
float fit_positive(const float* x, const float* w, int n, int nmax, std::uint8_t* codes) noexcept;

}  // namespace ggml::quant
