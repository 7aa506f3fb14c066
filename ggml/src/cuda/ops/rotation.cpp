#include "cuda/ops/rotation.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace ggml::cuda {
namespace {

/// The angle per position of each pair, and the factor of both values (YaRN, arXiv:2309.00071).
struct Frequencies {
  std::vector<double> per_position;
  float magnitude = 1.0f;

  explicit Frequencies(const RopeParams& p) : magnitude(p.attn_factor) {
    auto dim = [&](double beta) {
      return p.n_rot * std::log(p.n_ctx_orig / (beta * 2 * std::numbers::pi)) /
             (2 * std::log(static_cast<double>(p.base)));
    };
    const bool mixed = p.ext_factor != 0;
    const double low = mixed ? std::max(0.0, std::floor(dim(p.beta_fast))) : 0.0;
    const double high = mixed ? std::min(p.n_rot - 1.0, std::ceil(dim(p.beta_slow))) : 0.0;
    for (int pair = 0; pair < p.n_rot / 2; ++pair) {
      const double theta = std::pow(static_cast<double>(p.base), -2.0 * pair / p.n_rot);
      const double ramp = mixed ? 1 - std::clamp((pair - low) / std::max(0.001, high - low), 0.0, 1.0) : 0.0;
      const double mix = ramp * p.ext_factor;
      per_position.push_back(theta * (p.freq_scale * (1 - mix) + mix));
    }
    if (mixed) magnitude = static_cast<float>(magnitude * (1 + 0.1 * std::log(1.0 / p.freq_scale)));
  }
};

}  // namespace

RotateArgs rotation(const BindContext& context, const RopeParams& params, std::span<const TensorId> src) {
  RotateArgs a;
  if (params.layout == RopeLayout::none) return a;
  const Frequencies f(params);
  a.positions = context.data<const std::int32_t>(src[0]);
  a.factors = params.has_factors ? context.data<const float>(src[1]) : nullptr;
  a.frequencies = context.constants<double>(f.per_position);
  a.magnitude = f.magnitude;
  a.n_rot = params.n_rot;
  a.first = params.first;
  a.adjacent = params.layout == RopeLayout::norm;
  return a;
}

}  // namespace ggml::cuda
