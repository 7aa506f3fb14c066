#include "model/blocks/gqa_attention.h"

#include <vector>

#include "model/layer_builder.h"

namespace llama {

ggml::TensorId gqa_attention(LayerBuilder& b, ggml::TensorId x, const GqaAttentionCfg& cfg) {
  const LayerHparams& layer = b.layer();
  ggml::QkvParams projections;
  projections.n_head = layer.n_head;
  projections.n_head_kv = layer.n_head_kv;
  projections.dk = layer.dk;
  projections.dv = layer.dv;
  projections.fused = b.has(Role::attn_qkv);
  projections.has_qk_norm = cfg.qk_norm != QkNorm::none;
  projections.norm_full_row = cfg.qk_norm == QkNorm::full_row;
  projections.norm_eps = b.hparams().norm_eps;
  std::vector<ggml::Slot> slots;
  if (projections.fused)
    slots = {b.slot(Role::attn_qkv)};
  else
    slots = {b.slot(Role::attn_q), b.slot(Role::attn_k), b.slot(Role::attn_v)};
  if (projections.has_qk_norm) {
    slots.push_back(b.slot(Role::attn_q_norm));
    slots.push_back(b.slot(Role::attn_k_norm));
  }
  const ggml::GraphBuilder::Qkv qkv = b.graph().qkv(x, slots, projections, b.name("attn_qkv"));
  return b.linear(attend(b, qkv), Role::attn_output, "attn_out");
}

ggml::TensorId attend(LayerBuilder& b, ggml::GraphBuilder::Qkv qkv) {
  const LayerHparams& layer = b.layer();
  const LayerInputs& inputs = b.inputs();
  ggml::GraphBuilder& graph = b.graph();
  if (inputs.rope.layout != ggml::RopeLayout::none) {
    const ggml::TensorId factors =
        inputs.rope_factors != nullptr ? graph.weight(*inputs.rope_factors) : ggml::TensorId{};
    qkv = graph.rope_qk(qkv, inputs.positions, factors, inputs.rope, b.name("attn_rope"));
  }

  ggml::AttentionParams attention;
  attention.kv = inputs.kv;
  attention.n_head = layer.n_head;
  attention.scale = inputs.attention_scale;
  attention.flash = inputs.flash;
  attention.window_kind = layer.window_kind;
  attention.window = layer.window;
  attention.softcap = b.hparams().attention_softcap;
  attention.causal = b.hparams().causal;
  attention.has_sinks = b.has(Role::attn_sinks);
  const ggml::Slot sinks = attention.has_sinks ? b.slot(Role::attn_sinks) : ggml::Slot{};
  return graph.attention(qkv, inputs.attention, sinks, attention, b.name("attn_heads"));
}

}  // namespace llama
