#include "model/blocks/latent_attention.h"

#include <vector>

#include "model/layer_builder.h"

namespace llama {

using ggml::Shape;
using ggml::Slot;
using ggml::TensorId;

namespace {

/// [dk, n_head, T], the last n_rot elements of each head rotated.
TensorId queries(LayerBuilder& b, TensorId x) {
  const LayerHparams& layer = b.layer();
  TensorId q;
  if (b.has(Role::attn_q_a)) {
    const TensorId compressed = b.linear(x, Role::attn_q_a, "attn_q_a");
    q = b.linear(b.branch_norm(compressed, Role::attn_q_a_norm, "attn_q_a_norm"), Role::attn_q_b, "attn_q");
  } else {
    q = b.linear(x, Role::attn_q, "attn_q");
  }
  const std::int64_t tokens = b.graph().graph().at(q).shape[1];
  q = b.graph().reshape(q, Shape(layer.dk, layer.n_head, tokens), b.name("attn_q_heads"));
  return b.rotate(q, layer.dk - layer.n_rot, "attn_q_rope");
}

}  // namespace

TensorId latent_attention(LayerBuilder& b, TensorId x) {
  const LayerHparams& layer = b.layer();
  const LayerInputs& inputs = b.inputs();
  ggml::GraphBuilder& graph = b.graph();
  const int rank = b.hparams().mla.kv_rank, nope = layer.dk - layer.n_rot;

  const TensorId q = queries(b, x);
  const TensorId compressed = b.linear(x, Role::attn_kv_a_mqa, "attn_kv_a");
  const TensorId latent =
      b.branch_norm(graph.slice(compressed, 0, rank, b.name("attn_latent_raw")), Role::attn_kv_a_norm, "attn_latent");
  const TensorId k_raw = graph.slice(compressed, rank, layer.n_rot, b.name("attn_k_rot_raw"));
  const std::int64_t tokens = graph.graph().at(k_raw).shape[1];
  const TensorId k_rot =
      b.rotate(graph.reshape(k_raw, Shape(layer.n_rot, 1, tokens), b.name("attn_k_rot_head")), 0, "attn_k_rot");

  const bool split = !b.has(Role::attn_kv_b);  // keys and values in matrices of their own
  const Slot key_up = b.slot(split ? Role::attn_k_up : Role::attn_kv_b);
  const Slot value_up = split || b.has(Role::attn_v_b) ? b.slot(Role::attn_v_b) : key_up;
  const bool own_values = split || b.has(Role::attn_v_b);
  const int key_rows = split ? nope : nope + layer.dv;
  const int value_rows = own_values ? layer.dv : nope + layer.dv;
  const int value_begin = own_values ? 0 : nope;

  if (inputs.kv.n_head_kv != 1 || inputs.kv.dk != rank + layer.n_rot) {
    const ggml::MlaExpandParams expand{layer.n_head, nope, layer.n_rot, layer.dv, key_rows, value_rows, value_begin};
    const TensorId src[] = {latent, k_rot};
    const Slot slots[] = {key_up, value_up};
    const std::vector<TensorId> kv = graph.add(ggml::Op::mla_expand, expand, src, slots, b.name("attn_k"));
    ggml::AttentionParams attention;
    attention.kv = inputs.kv;
    attention.n_head = layer.n_head;
    attention.scale = inputs.attention_scale;
    attention.flash = inputs.flash;
    const TensorId heads = graph.attention({q, kv[0], kv[1]}, inputs.attention, {}, attention, b.name("attn_heads"));
    return b.linear(heads, Role::attn_output, "attn_out");
  }

  ggml::MlaParams params;
  params.kv = inputs.kv;
  params.n_head = layer.n_head;
  params.nope = nope;
  params.n_rot = layer.n_rot;
  params.kv_rank = rank;
  params.dv = layer.dv;
  params.k_up_rows = key_rows;
  params.v_up_rows = value_rows;
  params.v_up_begin = value_begin;
  params.scale = inputs.attention_scale;
  params.flash = inputs.flash;
  params.expand_from = inputs.mla_expand_from;
  params.max_scratch = inputs.mla_max_scratch;
  const Slot slots[] = {b.slot(Role::attn_k_b), key_up, value_up};
  const TensorId heads = graph.mla({q, latent, k_rot, inputs.attention}, slots, params, b.name("attn_heads"));
  return b.linear(heads, Role::attn_output, "attn_out");
}

}  // namespace llama
