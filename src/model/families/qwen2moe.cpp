#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"
#include "model/tensor_rows.h"

/// Qwen1.5-MoE and Qwen2-MoE (arXiv:2407.10671): softmax over all experts without normalising the chosen weights, and a
/// shared expert behind a sigmoid gate.
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = read_rms_eps(keys);
  hparams.rope.layout = ggml::RopeLayout::neox;
  require_experts(keys, hparams);
  hparams.experts.n_ff = read_expert_width(keys, hparams);
  hparams.experts.n_ff_shared =
      keys.integer("expert_shared_feed_forward_length", {1, 1 << 20}, hparams.layers.front().n_ff);
}

using enum Role;

constexpr auto kTensors = rows::join(
    rows::ends(Need::required), rows::norm(attn_norm, "attn_norm"), rows::qkv(Bias::optional), rows::attention_output(),
    rows::norm(ffn_norm, "ffn_norm"), rows::experts(), rows::shared_expert(), rows::shared_expert_gate());

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  b.add(gqa_attention(b, a, {}), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(ffn_norm, "ffn_norm");
  b.add(moe_ffn(b, m, {}), "ffn_moe_residual");
  b.add(shared_expert(b, m), "layer_out");
}

}  // namespace

extern const Family k_qwen2moe;
const Family k_qwen2moe{.arch = "qwen2moe", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
