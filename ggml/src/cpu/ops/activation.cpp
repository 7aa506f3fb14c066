#include "cpu/ops/activation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ggml::cpu {
namespace {

// gpt-oss: a swish of another slope on a clamped gate, times the clamped up plus one.
constexpr float kOaiLimit = 7.0f;
constexpr float kOaiSlope = 1.702f;
constexpr float kSoftplusLinear = 20.0f;  // from here on log(1 + exp x) is x in f32

}  // namespace

void apply_activation(const VecKernels& vec, Activation act, const float* x, std::int64_t n, float* dst) noexcept {
  switch (act) {
    case Activation::silu:
      return vec.silu(x, n, dst);
    case Activation::gelu:
      return vec.gelu(x, n, dst);
    case Activation::sigmoid:
      return vec.sigmoid(x, n, dst);
    case Activation::relu2:
      for (std::int64_t i = 0; i < n; ++i) {
        const float v = std::max(x[i], 0.0f);
        dst[i] = v * v;
      }
      return;
    case Activation::softplus:
      for (std::int64_t i = 0; i < n; ++i) dst[i] = x[i] > kSoftplusLinear ? x[i] : std::log1p(std::exp(x[i]));
      return;
    case Activation::swiglu_oai:  // exists in the gated form only; the shape rules see to it
    case Activation::none:
      if (dst != x) std::memcpy(dst, x, sizeof(float) * static_cast<std::size_t>(n));
      return;
  }
}

void apply_gated(const VecKernels& vec, const GatedParams& params, const float* gate, const float* up, std::int64_t n,
                 float* dst) noexcept {
  if (params.act == Activation::swiglu_oai) {
    for (std::int64_t i = 0; i < n; ++i) {
      const float a = std::min(gate[i], kOaiLimit);
      const float u = std::clamp(up[i], -kOaiLimit, kOaiLimit);
      dst[i] = a / (1.0f + std::exp(-kOaiSlope * a)) * (u + 1.0f);
    }
    return;
  }
  if (params.limit > 0.0f) {
    vec.silu(gate, n, dst);
    for (std::int64_t i = 0; i < n; ++i) {
      dst[i] = std::min(dst[i], params.limit) * std::clamp(up[i], -params.limit, params.limit);
    }
    return;
  }
  if (params.act == Activation::silu) return vec.silu_mul(gate, up, n, dst);
  if (params.act == Activation::gelu) return vec.gelu_mul(gate, up, n, dst);
  apply_activation(vec, params.act, gate, n, dst);
  vec.mul(dst, up, n, dst);
}

std::optional<GluOp> fused_glu(const GatedParams& params) noexcept {
  if (params.limit > 0.0f) return std::nullopt;
  if (params.act == Activation::silu) return GluOp::silu;
  if (params.act == Activation::gelu) return GluOp::gelu;
  return std::nullopt;
}

}  // namespace ggml::cpu
