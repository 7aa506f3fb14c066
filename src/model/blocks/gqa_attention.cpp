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

namespace {

ggml::TensorId hadamard(LayerBuilder& b, ggml::TensorId heads, const char* stem) {
  return b.graph().add(ggml::Op::hadamard, ggml::HadamardParams{}, {&heads, 1}, {}, b.name(stem)).front();
}

/// [dv * n_head, T] with each head transformed back.
ggml::TensorId values_back(LayerBuilder& b, ggml::TensorId heads) {
  const LayerHparams& layer = b.layer();
  const std::int64_t tokens = b.graph().graph().at(heads).shape[1];
  const ggml::TensorId apart =
      b.graph().reshape(heads, ggml::Shape(layer.dv, layer.n_head, tokens), b.name("attn_heads_apart"));
  const ggml::TensorId back = hadamard(b, apart, "attn_heads_back");
  return b.graph().reshape(back, ggml::Shape(std::int64_t{layer.dv} * layer.n_head, tokens), b.name("attn_heads_out"));
}

}  // namespace

ggml::TensorId attend(LayerBuilder& b, ggml::GraphBuilder::Qkv qkv) {
  const LayerHparams& layer = b.layer();
  const LayerInputs& inputs = b.inputs();
  ggml::GraphBuilder& graph = b.graph();
  if (inputs.rope.layout != ggml::RopeLayout::none) {
    const ggml::TensorId factors =
        inputs.rope_factors != nullptr ? graph.weight(*inputs.rope_factors) : ggml::TensorId{};
    qkv = graph.rope_qk(qkv, inputs.positions, factors, inputs.rope, b.name("attn_rope"));
  }
  if (inputs.k_hadamard) {
    qkv.q = hadamard(b, qkv.q, "attn_q_hadamard");
    qkv.k = hadamard(b, qkv.k, "attn_k_hadamard");
  }
  if (inputs.v_hadamard) qkv.v = hadamard(b, qkv.v, "attn_v_hadamard");

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
  const ggml::TensorId heads = graph.attention(qkv, inputs.attention, sinks, attention, b.name("attn_heads"));
  return inputs.v_hadamard ? values_back(b, heads) : heads;
}

}  // namespace llama
