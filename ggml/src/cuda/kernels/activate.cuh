#pragma once

#include "ggml/op.h"

/// Activation functions of single values.
namespace ggml::cuda {

__device__ inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

__device__ inline float activate(Activation act, float x) {
  switch (act) {
    case Activation::none:
      return x;
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::gelu:
      return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
    case Activation::relu2:
      return x > 0 ? x * x : 0.0f;
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::softplus:
      return x > 20.0f ? x : log1pf(expf(x));
    case Activation::swiglu_oai: {
      const float v = fminf(x, 7.0f);
      return v * sigmoid(1.702f * v);
    }
  }
  return x;
}

/// As the op `gated` means it.
__device__ inline float gated_value(const GatedParams& p, float gate, float up) {
  float g = activate(p.act, gate), u = up;
  if (p.act == Activation::swiglu_oai) {
    u = fminf(fmaxf(u, -7.0f), 7.0f) + 1.0f;
  } else if (p.limit > 0) {
    g = fminf(g, p.limit);
    u = fminf(fmaxf(u, -p.limit), p.limit);
  }
  return g * u;
}

}  // namespace ggml::cuda
