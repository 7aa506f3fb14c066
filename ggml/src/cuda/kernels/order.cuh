#pragma once

#include <cmath>

namespace ggml::cuda {

/// A float as an unsigned number of the same order; NaN counts as the smallest.
__device__ inline unsigned order_of(float v) {
  if (isnan(v)) return 0;
  const unsigned bits = __float_as_uint(v == 0.0f ? 0.0f : v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

}  // namespace ggml::cuda
