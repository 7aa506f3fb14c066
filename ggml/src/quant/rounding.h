#pragma once

#include <cmath>

#include "ggml/quant.h"

namespace ggml::quant {

/// 1 / d, and 0 for the factor of a block of zeros.
[[nodiscard]] inline float inverse(float d) noexcept {
  return d != 0 ? 1 / d : 0;
}

/// Truncation as the quantisers' formulas ask, with hostile values (NaN, infinity) sent to 0 instead of undefined
/// behaviour.
[[nodiscard]] inline int truncate(float v) noexcept {
  return std::fabs(v) < 1e9f ? static_cast<int>(v) : 0;
}

/// The value that a factor stored as F16 has when it is read back.
[[nodiscard]] inline float as_half(float d) noexcept {
  return f16_to_f32(f32_to_f16(d));
}

}  // namespace ggml::quant
