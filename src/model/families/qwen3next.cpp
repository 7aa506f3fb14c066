#include "model/blocks/delta_net.h"
#include "model/blocks/feed_forward.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"
#include "model/tensor_rows.h"

/// Qwen3-Next: three gated delta nets (arXiv:2412.06464) for each gated attention, experts beside a gated shared one.
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = read_rms_eps(keys);
  hparams.rope.layout = ggml::RopeLayout::neox;
  read_delta_net(keys, hparams);
  require_experts(keys, hparams);
  ExpertHparams& experts = hparams.experts;
  experts.n_ff = read_expert_width(keys, hparams);
  experts.n_ff_shared = keys.integer("expert_shared_feed_forward_length", {1, 1 << 20}, hparams.layers.front().n_ff);
  experts.normalise = true;
}

using enum Role;

constexpr std::array<TensorRow, 1> kBetaAlpha{
    {{.role = ssm_ba, .name = "ssm_ba", .shape = {Dim::embd, Dim::ssm_heads2}, .when = When::recurrent}}};

constexpr auto kTensors =
    rows::join(rows::ends(Need::optional), rows::norm(attn_norm, "attn_norm"), rows::hybrid_mixers(), kBetaAlpha,
               rows::experts(), rows::shared_expert(), rows::shared_expert_gate());

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  b.add(b.layer().recurrent ? delta_net(b, a) : gated_attention(b, a), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(post_attention_norm, "ffn_norm");
  b.add(moe_ffn(b, m, {}), "ffn_moe_residual");
  b.add(shared_expert(b, m), "layer_out");
}

}  // namespace

extern const Family k_qwen3next;
const Family k_qwen3next{.arch = "qwen3next", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
