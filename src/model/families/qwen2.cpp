#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"

/// Qwen2 and Qwen2.5 (arXiv:2407.10671): biases on q, k and v.
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = keys.real("attention.layer_norm_rms_epsilon", {0.0, 1.0}, std::nullopt);
  hparams.rope.layout = ggml::RopeLayout::neox;
}

using enum Role;

constexpr TensorRow kTensors[] = {
    {token_embd, "token_embd", Scope::global, {Dim::embd, Dim::vocab}},
    {output_norm, "output_norm", Scope::global, {Dim::embd}},
    {output, "output", Scope::global, {Dim::embd, Dim::vocab}, Need::optional, When::always, Bias::optional},
    {attn_norm, "attn_norm", Scope::layer, {Dim::embd}},
    {attn_qkv, "attn_qkv", Scope::layer, {Dim::embd, Dim::qkv_rows}, Need::optional, When::always, Bias::optional},
    {.role = attn_q, .name = "attn_q", .shape = {Dim::embd, Dim::q_rows}, .bias = Bias::optional, .instead = attn_qkv},
    {.role = attn_k, .name = "attn_k", .shape = {Dim::embd, Dim::k_rows}, .bias = Bias::optional, .instead = attn_qkv},
    {.role = attn_v, .name = "attn_v", .shape = {Dim::embd, Dim::v_rows}, .bias = Bias::optional, .instead = attn_qkv},
    {.role = attn_output, .name = "attn_output", .shape = {Dim::attn_out, Dim::embd}},
    {.role = ffn_norm, .name = "ffn_norm", .shape = {Dim::embd}},
    {.role = ffn_gate, .name = "ffn_gate", .shape = {Dim::embd, Dim::ff}},
    {.role = ffn_up, .name = "ffn_up", .shape = {Dim::embd, Dim::ff}},
    {.role = ffn_down, .name = "ffn_down", .shape = {Dim::ff, Dim::embd}},
};

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  b.add(gqa_attention(b, a, {}), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(ffn_norm, "ffn_norm");
  b.add(dense_ffn(b, m, {}), "layer_out");
}

}  // namespace

extern const Family k_qwen2;
const Family k_qwen2{.arch = "qwen2", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
