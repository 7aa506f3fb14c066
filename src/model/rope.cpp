#include "model/rope.h"

#include <cmath>

#include "ggml/error.h"
#include "ggml/log.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;

namespace {

RopeScaling scaling_of(const RopeHparams& rope, const RopeOverrides& overrides) {
  if (!overrides.scaling) return rope.scaling;
  const std::string& text = *overrides.scaling;
  if (text == "none") return RopeScaling::none;
  if (text == "linear") return RopeScaling::linear;
  if (text == "yarn") return RopeScaling::yarn;
  if (text == "longrope") return RopeScaling::longrope;
  throw Error(ErrorCode::invalid_argument, "RoPE scaling type \"" + text + "\" is not known",
              "use none, linear or yarn");
}

void check_positive(const char* what, float value) {
  if (std::isfinite(value) && value > 0.0f) return;
  throw Error(ErrorCode::invalid_argument,
              ggml::strf("%s must be a positive number, got %g", what, static_cast<double>(value)));
}

/// The magnitude that YaRN gives to a context extended `factor` times.
float yarn_magnitude(float factor, float k) {
  return factor <= 1.0f ? 1.0f : 1.0f + 0.1f * k * std::log(factor);
}

float yarn_attn_factor(const RopeHparams& rope, float factor) {
  const float g = rope.yarn_log_multiplier;
  float magnitude = yarn_magnitude(factor, rope.equal_magnitudes && g != 0.0f ? g : 1.0f);
  if (g != 0.0f) magnitude /= yarn_magnitude(factor, g);
  // The rotation itself multiplies by this; what is left here must not count it twice.
  return magnitude / (1.0f + 0.1f * std::log(factor));
}

}  // namespace

ggml::RopeParams resolve_rope(const Hparams& hparams, const LayerHparams& layer, const RopeOverrides& overrides) {
  const RopeHparams& rope = hparams.rope;
  const bool windowed = layer.window_kind != ggml::WindowKind::none;
  const RopeScaling scaling = scaling_of(rope, overrides);
  ggml::RopeParams params;
  params.layout = rope.layout;
  params.n_rot = layer.n_rot;
  params.base = windowed ? rope.base_swa : overrides.freq_base.value_or(rope.base);
  check_positive("RoPE frequency base", params.base);
  params.freq_scale = overrides.freq_scale.value_or(1.0f / rope.factor);
  check_positive("RoPE frequency scale", params.freq_scale);
  if (scaling == RopeScaling::none || (windowed && !rope.scale_windowed_layers)) params.freq_scale = 1.0f;
  params.n_ctx_orig = overrides.yarn_orig_ctx.value_or(rope.n_ctx_orig);
  params.ext_factor = overrides.yarn_ext_factor.value_or(-1.0f);
  if (params.ext_factor < 0.0f) params.ext_factor = scaling == RopeScaling::yarn ? 1.0f : 0.0f;
  params.beta_fast = overrides.yarn_beta_fast.value_or(32.0f);
  params.beta_slow = overrides.yarn_beta_slow.value_or(1.0f);
  check_positive("YaRN beta fast", params.beta_fast);
  check_positive("YaRN beta slow", params.beta_slow);
  const float asked = overrides.yarn_attn_factor.value_or(-1.0f);
  if (params.ext_factor == 0.0f)
    params.attn_factor = asked >= 0.0f ? asked : 1.0f;
  else
    params.attn_factor = yarn_attn_factor(rope, 1.0f / params.freq_scale);
  params.attn_factor *= rope.attn_factor;
  return params;
}

float attention_scale(const Hparams& hparams, const LayerHparams& layer, const ggml::RopeParams& rope) {
  if (hparams.attention_scale > 0.0f) return hparams.attention_scale;
  const float scale = 1.0f / std::sqrt(static_cast<float>(layer.dk));
  if (!hparams.rope.scale_scores || rope.freq_scale >= 1.0f) return scale;
  const float log_factor = std::log(1.0f / rope.freq_scale);
  float magnitude = rope.attn_factor * (1.0f + 0.1f * hparams.rope.yarn_log_multiplier * log_factor);
  if (rope.ext_factor != 0.0f) magnitude *= 1.0f + 0.1f * log_factor;
  return magnitude * magnitude * scale;
}

std::vector<float> text_divisors(const Hparams& hparams) {
  constexpr float kUnrotated = 1e30f;
  std::vector<int> sections = hparams.rope.sections;
  if (sections.empty() || hparams.layers.empty()) return {};
  sections.resize(4, 0);
  const int sum = sections[0] + sections[1] + sections[2] + sections[3];
  std::vector<float> divisors;
  bool any = false;
  for (int pair = 0; pair < hparams.layers.front().n_rot / 2; ++pair) {
    const int s = pair % sum;
    const auto axis = static_cast<std::size_t>(s % 3);
    const bool moves =
        hparams.rope.interleaved_sections ? s < 3 * sections[axis] : s < sections[0] + sections[1] + sections[2];
    divisors.push_back(moves ? 1.0f : kUnrotated);
    any = any || !moves;
  }
  return any ? divisors : std::vector<float>{};
}

const ggml::Weight* rope_factors(const Hparams& hparams, const TensorSet& global, const RopeOverrides& overrides,
                                 int n_ctx_per_sequence) {
  if (global[Role::rope_freqs]) return global[Role::rope_freqs].weight;
  if (scaling_of(hparams.rope, overrides) != RopeScaling::longrope) return nullptr;
  const int n_ctx_orig = overrides.yarn_orig_ctx.value_or(hparams.rope.n_ctx_orig);
  return global[n_ctx_per_sequence > n_ctx_orig ? Role::rope_factors_long : Role::rope_factors_short].weight;
}

}  // namespace llama
