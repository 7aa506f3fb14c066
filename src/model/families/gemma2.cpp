#include <cmath>

#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"
#include "model/tensor_rows.h"

/// Gemma 2 (arXiv:2408.00118): windowed and full layers in turn, soft caps on scores and logits, norms before and after
/// both branches, scaled embeddings.
namespace llama {

namespace {

constexpr int kLayersOf27b = 46;  // the one size that scales scores by the embedding width instead of the head width

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = read_rms_eps(keys);
  hparams.rope.layout = ggml::RopeLayout::neox;
  hparams.rope.base_swa = keys.real("rope.freq_base_swa", {1.0, 1e12}, hparams.rope.base);
  hparams.embedding_scale = std::sqrt(static_cast<float>(hparams.n_embd));
  hparams.attention_softcap = keys.real("attn_logit_softcapping", {0.0, 1e6}, 50.0f);
  hparams.final_softcap = keys.real("final_logit_softcapping", {0.0, 1e6}, 30.0f);
  if (hparams.n_layer == kLayersOf27b && hparams.layers.front().n_head > 0)
    hparams.attention_scale = 1.0f / std::sqrt(static_cast<float>(hparams.n_embd / hparams.layers.front().n_head));
  set_windows(hparams, keys.integer("attention.sliding_window", {0, 1 << 30}, 4096), read_window_period(keys, 2));
}

using enum Role;

// Always tied: there is no output matrix.
constexpr std::array<TensorRow, 2> kEnds{{{token_embd, "token_embd", Scope::global, {Dim::embd, Dim::vocab}},
                                          {output_norm, "output_norm", Scope::global, {Dim::embd}}}};

constexpr auto kTensors =
    rows::join(kEnds, rows::norm(attn_norm, "attn_norm"), rows::qkv(Bias::optional), rows::attention_output(),
               rows::norm(post_attention_norm, "post_attention_norm"), rows::norm(ffn_norm, "ffn_norm"),
               rows::dense_ffn(), rows::norm(post_ffw_norm, "post_ffw_norm"));

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  const ggml::TensorId o = gqa_attention(b, a, {});
  b.add(b.branch_norm(o, post_attention_norm, "attn_post_norm"), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(ffn_norm, "ffn_norm");
  const ggml::TensorId f = dense_ffn(b, m, {.act = ggml::Activation::gelu});
  b.add(b.branch_norm(f, post_ffw_norm, "ffn_post_norm"), "layer_out");
}

}  // namespace

extern const Family k_gemma2;
const Family k_gemma2{.arch = "gemma2", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
