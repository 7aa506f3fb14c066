#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"
#include "model/tensor_rows.h"

/// BERT (arXiv:1810.04805) as an encoder for embeddings: learned positions, all tokens see each other, norms behind the
/// residual sums, a feed-forward without gate.
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_kind = ggml::NormKind::layer;
  hparams.norm_eps = keys.real("attention.layer_norm_epsilon", {0.0, 1.0}, std::nullopt);
  hparams.causal = keys.flag("attention.causal", true);
  hparams.pooling = read_pooling(keys);
  hparams.n_token_types = keys.integer_of("tokenizer.ggml.token_type_count", {1, 1 << 16});
  hparams.rope.layout = ggml::RopeLayout::none;
  hparams.is_encoder = true;
}

using enum Role;

constexpr std::array<TensorRow, 4> kEmbeddings{{
    {token_embd, "token_embd", Scope::global, {Dim::embd, Dim::vocab}},
    {position_embd, "position_embd", Scope::global, {Dim::embd, Dim::context}},
    {token_types, "token_types", Scope::global, {Dim::embd, Dim::token_types}},
    {token_embd_norm, "token_embd_norm", Scope::global, {Dim::embd}, Need::required, When::always, Bias::required},
}};

constexpr std::array<TensorRow, 4> kLayer{{
    {.role = attn_output_norm, .name = "attn_output_norm", .shape = {Dim::embd}, .bias = Bias::required},
    {.role = ffn_up, .name = "ffn_up", .shape = {Dim::embd, Dim::ff}, .bias = Bias::optional},
    {.role = ffn_down, .name = "ffn_down", .shape = {Dim::ff, Dim::embd}, .bias = Bias::optional},
    {.role = layer_output_norm, .name = "layer_output_norm", .shape = {Dim::embd}, .bias = Bias::required},
}};

constexpr auto kTensors =
    rows::join(kEmbeddings, rows::qkv(Bias::optional), rows::attention_output(Bias::optional), kLayer);

void build_layer(LayerBuilder& b) {
  b.add(gqa_attention(b, b.stream(), {}), "attn_residual");
  b.norm_stream(attn_output_norm, "attn_out_norm");
  b.add(dense_ffn(b, b.stream(), {.act = ggml::Activation::gelu, .gated = false}), "ffn_residual");
  b.norm_stream(layer_output_norm, "layer_out");
}

}  // namespace

extern const Family k_bert;
const Family k_bert{.arch = "bert", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
