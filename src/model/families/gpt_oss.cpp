#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"
#include "model/tensor_rows.h"

/// gpt-oss (arXiv:2508.10925): attention sinks, windowed and full layers in turn, biases on every projection, experts
/// with a clamped swish, softmax over the chosen experts only.
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = read_rms_eps(keys);
  hparams.rope.layout = ggml::RopeLayout::neox;
  hparams.rope.base_swa = keys.real("rope.freq_base_swa", {1.0, 1e12}, hparams.rope.base);
  require_experts(keys, hparams);
  hparams.experts.n_ff = keys.integer("expert_feed_forward_length", {1, 1 << 20}, std::nullopt);
  hparams.experts.gating = ggml::Gating::softmax_selected;
  set_windows(hparams, keys.integer("attention.sliding_window", {1, 1 << 30}, std::nullopt),
              read_window_period(keys, 2));
}

using enum Role;

constexpr std::array<TensorRow, 1> kSinks{{{.role = attn_sinks, .name = "attn_sinks", .shape = {Dim::heads}}}};

constexpr auto kTensors =
    rows::join(rows::ends(Need::required), rows::norm(attn_norm, "attn_norm"), rows::qkv(Bias::optional), kSinks,
               rows::attention_output(Bias::required), rows::norm(post_attention_norm, "post_attention_norm"),
               rows::experts(Bias::required));

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  b.add(gqa_attention(b, a, {}), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(post_attention_norm, "ffn_norm");
  b.add(moe_ffn(b, m, {.act = ggml::Activation::swiglu_oai}), "layer_out");
}

}  // namespace

extern const Family k_gpt_oss;
const Family k_gpt_oss{.arch = "gpt-oss", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
