#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"
#include "model/tensor_rows.h"

/// GLM-4.5 to 4.7 and Air (arXiv:2508.06471): sigmoid router with a bias on the choice, a shared expert, the first
/// layers dense, part of each head rotated.
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = read_rms_eps(keys);
  hparams.rope.layout = ggml::RopeLayout::neox;
  read_rope_sections(keys, hparams);
  require_experts(keys, hparams);
  read_leading_dense(keys, hparams);
  ExpertHparams& experts = hparams.experts;
  experts.n_ff = keys.integer("expert_feed_forward_length", {1, 1 << 20}, std::nullopt);
  experts.n_ff_shared = experts.n_ff * keys.integer("expert_shared_count", {1, 64}, std::nullopt);
  experts.gating = read_gating(keys, ggml::Gating::sigmoid);
  read_expert_weighting(keys, experts);
}

using enum Role;

constexpr auto kTensors =
    rows::join(rows::ends(Need::optional), rows::norm(attn_norm, "attn_norm"), rows::qkv(Bias::optional),
               rows::norm(attn_q_norm, "attn_q_norm", Dim::dk, Need::optional),
               rows::norm(attn_k_norm, "attn_k_norm", Dim::dk, Need::optional), rows::attention_output(),
               rows::norm(post_attention_norm, "post_attention_norm"), rows::dense_ffn(), rows::experts(),
               rows::selection_bias(Need::required), rows::shared_expert());

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  const QkNorm qk_norm = b.has(attn_q_norm) && b.has(attn_k_norm) ? QkNorm::per_head : QkNorm::none;
  b.add(gqa_attention(b, a, {.qk_norm = qk_norm}), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(post_attention_norm, "ffn_norm");
  if (!b.layer().moe) {
    b.add(dense_ffn(b, m, {}), "layer_out");
    return;
  }
  b.add(moe_ffn(b, m, {}), "ffn_moe_residual");
  b.add(shared_expert(b, m), "layer_out");
}

}  // namespace

extern const Family k_glm4moe;
const Family k_glm4moe{.arch = "glm4moe", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
