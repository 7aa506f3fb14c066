#include <algorithm>

#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"

/// Qwen3 with experts (arXiv:2505.09388): softmax over all experts, the chosen ones' weights normalised to one.
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = keys.real("attention.layer_norm_rms_epsilon", {0.0, 1.0}, std::nullopt);
  hparams.rope.layout = ggml::RopeLayout::neox;
  ExpertHparams& experts = hparams.experts;
  if (experts.count == 0) keys.problem(keys.full_name("expert_count") + ": at least 1 expected, file has none");
  const int dense_share = hparams.layers.front().n_ff / std::max(experts.used, 1);
  experts.n_ff = keys.integer("expert_feed_forward_length", {1, 1 << 20}, dense_share);
  experts.normalise = true;
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
    {.role = ffn_norm, .name = "ffn_norm", .shape = {Dim::embd}},
    {.role = ffn_gate_inp, .name = "ffn_gate_inp", .shape = {Dim::embd, Dim::experts}},
    {.role = ffn_gate_up_exps,
     .name = "ffn_gate_up_exps",
     .shape = {Dim::embd, Dim::expert_ff2, Dim::experts},
     .need = Need::optional},
    {.role = ffn_gate_exps,
     .name = "ffn_gate_exps",
     .shape = {Dim::embd, Dim::expert_ff, Dim::experts},
     .instead = ffn_gate_up_exps},
    {.role = ffn_up_exps,
     .name = "ffn_up_exps",
     .shape = {Dim::embd, Dim::expert_ff, Dim::experts},
     .instead = ffn_gate_up_exps},
    {.role = ffn_down_exps, .name = "ffn_down_exps", .shape = {Dim::expert_ff, Dim::embd, Dim::experts}},
};

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  b.add(gqa_attention(b, a, {.qk_norm = QkNorm::per_head}), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(ffn_norm, "ffn_norm");
  b.add(moe_ffn(b, m, {}), "layer_out");
}

}  // namespace

extern const Family k_qwen3moe;
const Family k_qwen3moe{.arch = "qwen3moe", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
