#pragma once

#include "cuda/kernels/activations.h"

namespace ggml::cuda {

/// Cosine and sine of pair p's angle at a position, times the magnitude.
__device__ __forceinline__ float2 turn_of(const RotateArgs& a, int position, int p) {
  constexpr double kTurn = 6.283185307179586;
  double angle = position * a.frequencies[p];
  if (a.factors != nullptr) angle /= static_cast<double>(a.factors[p]);
  float s, c;
  sincosf(static_cast<float>(angle - rint(angle / kTurn) * kTurn), &s, &c);
  return {a.magnitude * c, a.magnitude * s};
}

}  // namespace ggml::cuda
