#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ggml/op.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace llama {

/// RoPE settings of the command line; what is empty comes from the file.
struct RopeOverrides {
  std::optional<float> freq_base, freq_scale, yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
  std::optional<int> yarn_orig_ctx;
  std::optional<std::string> scaling;  // none, linear, yarn, longrope
};

/// The rotation of one layer, from the file and the overrides (spec: "from file and command line to those inputs").
/// Throws Error(invalid_argument) naming the setting.
[[nodiscard]] ggml::RopeParams resolve_rope(const Hparams& hparams, const LayerHparams& layer,
                                            const RopeOverrides& overrides);

/// Factor on the scores of a layer with this rotation: 1 / sqrt(dk), or what the family sets, and YaRN's share where
/// the family has one (DeepSeek).
[[nodiscard]] float attention_scale(const Hparams& hparams, const LayerHparams& layer, const ggml::RopeParams& rope);

/// Divisors that M-RoPE's sections mean for text, whose tokens have the same time, height and width: pairs of the
/// fourth section stay unrotated. Empty when there are none.
[[nodiscard]] std::vector<float> text_divisors(const Hparams& hparams);

/// The frequency divisors that the model's tensors give for this context size per sequence; null when there are none.
[[nodiscard]] const ggml::Weight* rope_factors(const Hparams& hparams, const TensorSet& global,
                                               const RopeOverrides& overrides, int n_ctx_per_sequence);

}  // namespace llama
