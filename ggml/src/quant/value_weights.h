#pragma once

#include <cmath>
#include <cstdint>

/// How much each weight's error counts in the searches of the types with tables of values.
namespace ggml::quant {

[[nodiscard]] inline float mean_square(const float* x, std::int64_t n) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return sum / static_cast<float>(n);
}

/// Importance times the size of the value, damped by `sigma2`; no importance is the same as equal importance.
inline void search_weights(const float* x, const float* importance, float sigma2, int n, float* w) {
  for (int i = 0; i < n; ++i) w[i] = (importance != nullptr ? importance[i] : 1) * std::sqrt(sigma2 + x[i] * x[i]);
}

}  // namespace ggml::quant
