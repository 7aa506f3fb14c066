#include "ggml/log.h"
#include "model/blocks/feed_forward.h"
#include "model/blocks/latent_attention.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"
#include "model/tensor_rows.h"

/// DeepSeek-V2, V3 and R1 (arXiv:2405.04434, arXiv:2412.19437), Kimi-K2, GLM-4.7-Flash: latent attention, and experts
/// chosen by groups with a bias on the choice, beside shared ones. The first layers are dense.
namespace llama {

namespace {

void read_attention(KeyReader& keys, Hparams& hparams) {
  constexpr IntRange kWidth{1, 1 << 20};
  hparams.mla.q_rank = keys.integer("attention.q_lora_rank", {0, 1 << 20}, 0);
  hparams.mla.kv_rank = keys.integer("attention.kv_lora_rank", kWidth, std::nullopt);
  for (LayerHparams& layer : hparams.layers) {
    // Files made for a cache of latents give the latent's widths as key and value length, and one key head.
    layer.dk = keys.integer("attention.key_length_mla", {1, 1 << 14}, layer.dk);
    layer.dv = keys.integer("attention.value_length_mla", {1, 1 << 14}, layer.dv);
    layer.n_head_kv = layer.n_head;
    if (layer.n_rot >= layer.dk) {
      keys.problem(ggml::strf("%s: less than the key length (%d) expected, file has %d",
                              keys.full_name("rope.dimension_count").c_str(), layer.dk, layer.n_rot));
      layer.n_rot = 0;
    }
  }
  if (keys.real("attention.temperature_scale", {0.0, 1e6}, 0.0f) != 0.0f)
    keys.problem(keys.full_name("attention.temperature_scale") +
                 ": queries scaled by position are not supported by this version");
}

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = read_rms_eps(keys);
  RopeHparams& rope = hparams.rope;
  rope.layout = ggml::RopeLayout::norm;
  rope.yarn_log_multiplier *= 10.0f;  // stored as a tenth of it
  rope.equal_magnitudes = true;
  rope.scale_scores = true;
  read_attention(keys, hparams);
  read_leading_dense(keys, hparams);
  ExpertHparams& experts = hparams.experts;
  if (!hparams.has_experts()) return;
  experts.n_ff = keys.integer("expert_feed_forward_length", {1, 1 << 20}, std::nullopt);
  experts.n_ff_shared = experts.n_ff * keys.integer("expert_shared_count", {1, 64}, std::nullopt);
  // The files of GLM-4.7-Flash leave the router's function out.
  const bool is_glm = (hparams.n_layer_all == 47 || hparams.n_layer_all == 48) && hparams.n_vocab == 154880;
  experts.gating = read_gating(keys, is_glm ? ggml::Gating::sigmoid : ggml::Gating::softmax);
  read_expert_weighting(keys, experts);
}

using enum Role;

constexpr std::array<TensorRow, 9> kAttention{{
    {.role = attn_q_a, .name = "attn_q_a", .shape = {Dim::embd, Dim::q_rank}, .need = Need::optional},
    {.role = attn_q_a_norm, .name = "attn_q_a_norm", .shape = {Dim::q_rank}, .with = attn_q_a},
    {.role = attn_q_b, .name = "attn_q_b", .shape = {Dim::q_rank, Dim::q_rows}, .with = attn_q_a},
    {.role = attn_q, .name = "attn_q", .shape = {Dim::embd, Dim::q_rows}, .instead = attn_q_a},
    {.role = attn_kv_a_mqa, .name = "attn_kv_a_mqa", .shape = {Dim::embd, Dim::kv_rank_rot}},
    {.role = attn_kv_a_norm, .name = "attn_kv_a_norm", .shape = {Dim::kv_rank}},
    // Keys and values in one matrix, or in two (of two or three axes), or both ways.
    {.role = attn_k_b,
     .name = "attn_k_b",
     .shape = {Dim::nope, Dim::kv_rank, Dim::heads},
     .need = Need::optional,
     .flat_shape = {Dim::nope, Dim::kv_rank_rows}},
    {.role = attn_v_b,
     .name = "attn_v_b",
     .shape = {Dim::kv_rank, Dim::dv, Dim::heads},
     .with = attn_k_b,
     .flat_shape = {Dim::kv_rank, Dim::attn_out}},
    {.role = attn_kv_b, .name = "attn_kv_b", .shape = {Dim::kv_rank, Dim::kv_b_rows}, .unless = attn_k_b},
}};

constexpr auto kTensors = rows::join(rows::ends(Need::optional), rows::norm(attn_norm, "attn_norm"), kAttention,
                                     rows::attention_output(), rows::norm(ffn_norm, "ffn_norm"), rows::dense_ffn(),
                                     rows::experts(), rows::selection_bias(Need::optional), rows::shared_expert());

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  b.add(latent_attention(b, a), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(ffn_norm, "ffn_norm");
  if (!b.layer().moe) {
    b.add(dense_ffn(b, m, {}), "layer_out");
    return;
  }
  b.add(moe_ffn(b, m, {}), "ffn_moe_residual");
  b.add(shared_expert(b, m), "layer_out");
}

}  // namespace

extern const Family k_deepseek2;
const Family k_deepseek2{.arch = "deepseek2", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
