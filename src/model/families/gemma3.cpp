#include <cmath>

#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"

/// Gemma 3 text models (arXiv:2503.19786): five windowed layers with their own rotation base for each full one, norms
/// before and after both branches, norms on q and k, scaled embeddings.
namespace llama {

namespace {

constexpr int kLayersOf27b = 62;  // the one size that scales scores by the embedding width instead of the head width

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = keys.real("attention.layer_norm_rms_epsilon", {0.0, 1.0}, std::nullopt);
  hparams.rope.layout = ggml::RopeLayout::neox;
  hparams.rope.scale_windowed_layers = false;
  hparams.embedding_scale = std::sqrt(static_cast<float>(hparams.n_embd));
  hparams.final_softcap = keys.real("final_logit_softcapping", {0.0, 1e6}, 0.0f);
  if (hparams.n_layer == kLayersOf27b && hparams.layers.front().n_head > 0)
    hparams.attention_scale = 1.0f / std::sqrt(static_cast<float>(hparams.n_embd / hparams.layers.front().n_head));
  const int window = keys.integer("attention.sliding_window", {0, 1 << 30}, 0);
  // Some converters store the pattern as one flag per layer; they all describe the same period.
  const int period = keys.is_array("attention.sliding_window_pattern")
                         ? 6
                         : keys.integer("attention.sliding_window_pattern", {0, 512}, 6);
  if (window == 0 || period == 1) return;
  for (int i = 0; i < hparams.n_layer; ++i) {
    if (period > 0 && i % period == period - 1) continue;
    LayerHparams& layer = hparams.layers[static_cast<std::size_t>(i)];
    layer.window_kind = ggml::WindowKind::standard;
    layer.window = window;
  }
}

using enum Role;

constexpr TensorRow kTensors[] = {
    {token_embd, "token_embd", Scope::global, {Dim::embd, Dim::vocab}},
    {output_norm, "output_norm", Scope::global, {Dim::embd}},
    {output, "output", Scope::global, {Dim::embd, Dim::vocab}, Need::optional},
    {attn_norm, "attn_norm", Scope::layer, {Dim::embd}},
    {attn_qkv, "attn_qkv", Scope::layer, {Dim::embd, Dim::qkv_rows}, Need::optional, When::always, Bias::optional},
    {.role = attn_q, .name = "attn_q", .shape = {Dim::embd, Dim::q_rows}, .bias = Bias::optional, .instead = attn_qkv},
    {.role = attn_k, .name = "attn_k", .shape = {Dim::embd, Dim::k_rows}, .bias = Bias::optional, .instead = attn_qkv},
    {.role = attn_v, .name = "attn_v", .shape = {Dim::embd, Dim::v_rows}, .bias = Bias::optional, .instead = attn_qkv},
    {.role = attn_q_norm, .name = "attn_q_norm", .shape = {Dim::dk}},
    {.role = attn_k_norm, .name = "attn_k_norm", .shape = {Dim::dk}},
    {.role = attn_output, .name = "attn_output", .shape = {Dim::attn_out, Dim::embd}},
    {.role = post_attention_norm, .name = "post_attention_norm", .shape = {Dim::embd}},
    {.role = ffn_norm, .name = "ffn_norm", .shape = {Dim::embd}},
    {.role = ffn_gate, .name = "ffn_gate", .shape = {Dim::embd, Dim::ff}},
    {.role = ffn_up, .name = "ffn_up", .shape = {Dim::embd, Dim::ff}},
    {.role = ffn_down, .name = "ffn_down", .shape = {Dim::ff, Dim::embd}},
    {.role = post_ffw_norm, .name = "post_ffw_norm", .shape = {Dim::embd}},
};

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  const ggml::TensorId o = gqa_attention(b, a, {.qk_norm = QkNorm::per_head});
  b.add(b.branch_norm(o, post_attention_norm, "attn_post_norm"), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(ffn_norm, "ffn_norm");
  const ggml::TensorId f = dense_ffn(b, m, {.act = ggml::Activation::gelu});
  b.add(b.branch_norm(f, post_ffw_norm, "ffn_post_norm"), "layer_out");
}

}  // namespace

extern const Family k_gemma3;
const Family k_gemma3{.arch = "gemma3", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
