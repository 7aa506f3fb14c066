#pragma once

#include "cuda/kernels/activations.h"

namespace ggml::cuda {

/// Cosine and sine of pair p's angle at a position, times the magnitude.
__device__ __forceinline__ float2 turn_of(const RotateArgs& a, int position, int p) {
  constexpr double kTurns = 0.15915494309189535;  // per radian
  double turns = position * a.frequencies[p] * kTurns;
  if (a.factors != nullptr) turns /= static_cast<double>(a.factors[p]);
  float s, c;
  sincospif(2.0f * static_cast<float>(turns - rint(turns)), &s, &c);
  return {a.magnitude * c, a.magnitude * s};
}

}  // namespace ggml::cuda
