#include "ggml/log.h"
#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"

/// Llama 1 to 3 and models of the same shape (Mistral, SmolLM2, ...), with the experts of Mixtral (arXiv:2401.04088).
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = keys.real("attention.layer_norm_rms_epsilon", {0.0, 1.0}, std::nullopt);
  hparams.rope.layout = ggml::RopeLayout::norm;
  const LayerHparams& first = hparams.layers.front();
  if (first.n_rot != first.dk)
    keys.problem(ggml::strf("%s: the key length (%d) expected, file has %d",
                            keys.full_name("rope.dimension_count").c_str(), first.dk, first.n_rot));
  hparams.experts.n_ff = first.n_ff;  // Mixtral's experts have the width of the dense feed-forward
  hparams.experts.normalise = true;
}

using enum Role;

constexpr TensorRow kTensors[] = {
    {token_embd, "token_embd", Scope::global, {Dim::embd, Dim::vocab}},
    {output_norm, "output_norm", Scope::global, {Dim::embd}},
    {output, "output", Scope::global, {Dim::embd, Dim::vocab}, Need::optional},
    {rope_freqs, "rope_freqs", Scope::global, {Dim::half_rot}, Need::optional},
    {rope_factors_long, "rope_factors_long", Scope::global, {Dim::half_rot}, Need::optional},
    {rope_factors_short, "rope_factors_short", Scope::global, {Dim::half_rot}, Need::optional},
    {attn_norm, "attn_norm", Scope::layer, {Dim::embd}},
    {attn_qkv, "attn_qkv", Scope::layer, {Dim::embd, Dim::qkv_rows}, Need::optional, When::always, Bias::optional},
    {.role = attn_q, .name = "attn_q", .shape = {Dim::embd, Dim::q_rows}, .bias = Bias::optional, .instead = attn_qkv},
    {.role = attn_k, .name = "attn_k", .shape = {Dim::embd, Dim::k_rows}, .bias = Bias::optional, .instead = attn_qkv},
    {.role = attn_v, .name = "attn_v", .shape = {Dim::embd, Dim::v_rows}, .bias = Bias::optional, .instead = attn_qkv},
    {.role = attn_output, .name = "attn_output", .shape = {Dim::attn_out, Dim::embd}, .bias = Bias::optional},
    {.role = ffn_norm, .name = "ffn_norm", .shape = {Dim::embd}},
    {.role = ffn_gate, .name = "ffn_gate", .shape = {Dim::embd, Dim::ff}, .when = When::dense, .bias = Bias::optional},
    {.role = ffn_up, .name = "ffn_up", .shape = {Dim::embd, Dim::ff}, .when = When::dense, .bias = Bias::optional},
    {.role = ffn_down, .name = "ffn_down", .shape = {Dim::ff, Dim::embd}, .when = When::dense, .bias = Bias::optional},
    {.role = ffn_gate_inp, .name = "ffn_gate_inp", .shape = {Dim::embd, Dim::experts}, .when = When::moe},
    {.role = ffn_gate_up_exps,
     .name = "ffn_gate_up_exps",
     .shape = {Dim::embd, Dim::expert_ff2, Dim::experts},
     .need = Need::optional,
     .when = When::moe},
    {.role = ffn_gate_exps,
     .name = "ffn_gate_exps",
     .shape = {Dim::embd, Dim::expert_ff, Dim::experts},
     .need = Need::optional,
     .when = When::moe,
     .instead = ffn_gate_up_exps},
    {.role = ffn_up_exps,
     .name = "ffn_up_exps",
     .shape = {Dim::embd, Dim::expert_ff, Dim::experts},
     .when = When::moe,
     .instead = ffn_gate_up_exps},
    {.role = ffn_down_exps,
     .name = "ffn_down_exps",
     .shape = {Dim::expert_ff, Dim::embd, Dim::experts},
     .when = When::moe},
};

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  b.add(gqa_attention(b, a, {}), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(ffn_norm, "ffn_norm");
  b.add(b.hparams().has_experts() ? moe_ffn(b, m, {}) : dense_ffn(b, m, {}), "layer_out");
}

}  // namespace

extern const Family k_llama;
const Family k_llama{.arch = "llama", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
