#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace ggml {

/// Sizes that the transform has a form for.
[[nodiscard]] constexpr bool has_hadamard(std::int64_t n) noexcept {
  return n > 0 && (n & (n - 1)) == 0;
}

/// x = H x / sqrt(n) in place, H the Hadamard matrix in natural order: h[i][j] = (-1)^popcount(i & j). Orthonormal and
/// symmetric, so it is its own inverse. Pre: has_hadamard(n).
template <class T>
void hadamard(T* x, std::int64_t n) noexcept {
  for (std::int64_t half = 1; half < n; half *= 2)
    for (std::int64_t begin = 0; begin < n; begin += 2 * half)
      for (std::int64_t i = begin; i < begin + half; ++i) {
        const T a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
  const T scale = T(1) / std::sqrt(static_cast<T>(n));
  for (std::int64_t i = 0; i < n; ++i) x[i] *= scale;
}

}  // namespace ggml
