#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"
#include "model/tensor_rows.h"

/// MiniMax-M2: norms over all heads of q and of k at once, sigmoid router with a bias on the choice, no shared expert.
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = read_rms_eps(keys);
  hparams.rope.layout = ggml::RopeLayout::neox;
  require_experts(keys, hparams);
  ExpertHparams& experts = hparams.experts;
  experts.n_ff = keys.integer("expert_feed_forward_length", {1, 1 << 20}, std::nullopt);
  experts.gating = read_gating(keys, std::nullopt);
  experts.normalise = true;
}

using enum Role;

constexpr auto kTensors = rows::join(
    rows::ends(Need::required), rows::norm(attn_norm, "attn_norm"), rows::qkv(Bias::optional),
    rows::norm(attn_q_norm, "attn_q_norm", Dim::q_rows), rows::norm(attn_k_norm, "attn_k_norm", Dim::k_rows),
    rows::attention_output(), rows::norm(ffn_norm, "ffn_norm"), rows::experts(), rows::selection_bias(Need::required));

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  b.add(gqa_attention(b, a, {.qk_norm = QkNorm::full_row}), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(ffn_norm, "ffn_norm");
  b.add(moe_ffn(b, m, {}), "layer_out");
}

}  // namespace

extern const Family k_minimax_m2;
const Family k_minimax_m2{.arch = "minimax-m2", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
