#include "model/blocks/delta_net.h"

#include "model/blocks/gqa_attention.h"
#include "model/layer_builder.h"

namespace llama {

using ggml::GraphBuilder;
using ggml::Shape;
using ggml::TensorId;

namespace {

std::int64_t tokens_of(LayerBuilder& b, TensorId x) {
  return b.graph().graph().at(x).shape[1];
}

/// x as `heads` vectors of `dim` per token.
TensorId as_heads(LayerBuilder& b, TensorId x, std::int64_t dim, std::int64_t heads, const char* stem) {
  const std::int64_t tokens = b.graph().graph().at(x).shape.elements() / (dim * heads);
  return b.graph().reshape(x, Shape(dim, heads, tokens), b.name(stem));
}

TensorId flat(LayerBuilder& b, TensorId x, const char* stem) {
  const Shape shape = b.graph().graph().at(x).shape;
  return b.graph().reshape(x, Shape(shape[0] * shape[1], shape[2]), b.name(stem));
}

/// Elements [begin, begin + count) of each of `heads` equal parts of x, all heads' one after the other.
struct Part {
  int heads, begin, count;
};
TensorId part_of_heads(LayerBuilder& b, TensorId x, const Part& part, const char* stem) {
  const std::int64_t width = b.graph().graph().at(x).shape[0];
  const TensorId heads = as_heads(b, x, width / part.heads, part.heads, stem);
  return flat(b, b.graph().slice(heads, part.begin, part.count, b.name(stem)), stem);
}

struct Streams {
  TensorId qkv;   // [conv_channels, T]
  TensorId gate;  // z [inner, T]
};

Streams streams(LayerBuilder& b, TensorId x) {
  if (!b.has(Role::ssm_in)) return {b.linear(x, Role::attn_qkv, "linear_attn_qkv"), b.linear(x, Role::attn_gate, "z")};
  // Older files: for each key head its q, k, and the v and z of its value heads.
  const DeltaNetHparams& net = b.hparams().delta_net;
  const int d = net.head_dim, v = net.n_head_v / net.n_head_k * d, heads = net.n_head_k;
  const TensorId all = b.linear(x, Role::ssm_in, "linear_attn_in");
  const TensorId q = part_of_heads(b, all, {heads, 0, d}, "linear_attn_q");
  const TensorId k = part_of_heads(b, all, {heads, d, d}, "linear_attn_k");
  const TensorId values = part_of_heads(b, all, {heads, 2 * d, v}, "linear_attn_v");
  const TensorId z = part_of_heads(b, all, {heads, 2 * d + v, v}, "z");
  const auto join = [&](TensorId left, TensorId right, const char* stem) {
    const std::int64_t tokens = tokens_of(b, left);
    const auto row = [&](TensorId t) {
      return b.graph().reshape(t, Shape(b.graph().graph().at(t).shape[0], 1, tokens), b.name(stem));
    };
    return flat(b, b.graph().concat(row(left), row(right), b.name(stem)), stem);
  };
  return {join(join(q, k, "linear_attn_qk"), values, "linear_attn_qkv"), z};
}

struct Gates {
  TensorId beta, alpha;  // [n_head_v, T]
};

Gates gates(LayerBuilder& b, TensorId x) {
  if (!b.has(Role::ssm_ba)) return {b.linear(x, Role::ssm_beta, "beta"), b.linear(x, Role::ssm_alpha, "alpha")};
  // For each key head the betas of its value heads, then their alphas.
  const DeltaNetHparams& net = b.hparams().delta_net;
  const int r = net.n_head_v / net.n_head_k;
  const TensorId both = b.linear(x, Role::ssm_ba, "beta_alpha");
  return {part_of_heads(b, both, {net.n_head_k, 0, r}, "beta"), part_of_heads(b, both, {net.n_head_k, r, r}, "alpha")};
}

}  // namespace

TensorId delta_net(LayerBuilder& b, TensorId x) {
  const DeltaNetHparams& net = b.hparams().delta_net;
  const GraphBuilder::StateInputs& state = b.inputs().state;
  const std::int64_t slot_floats = net.state_floats();
  const std::int64_t conv_floats = net.conv_state_floats();
  const Streams in = streams(b, x);
  const Gates gate = gates(b, x);

  const ggml::Conv1dParams conv{net.conv_kernel, ggml::Activation::silu, {slot_floats, 0}};
  const TensorId qkv = b.graph().conv1d(in.qkv, state, b.slot(Role::ssm_conv1d), conv, b.name("conv_out"));

  ggml::DeltaNetParams params;
  params.head_dim = net.head_dim;
  params.n_head_k = net.n_head_k;
  params.n_head_v = net.n_head_v;
  params.tiled = net.tiled;
  params.eps = b.hparams().norm_eps;
  params.state = {slot_floats, conv_floats};
  ggml::Slot decay = b.slot(Role::ssm_a);
  decay.bias = b.slot(Role::ssm_dt).weight;
  const TensorId o = b.graph().delta_net({qkv, gate.beta, gate.alpha}, state, decay, params, b.name("delta_net"));

  const TensorId heads = as_heads(b, o, net.head_dim, net.n_head_v, "delta_net_heads");
  const TensorId normed = b.branch_norm(heads, Role::ssm_norm, "delta_net_norm");
  const TensorId z = as_heads(b, in.gate, net.head_dim, net.n_head_v, "z_heads");
  const TensorId gated = b.gated(z, normed, ggml::Activation::silu, "delta_net_gated");
  return b.linear(flat(b, gated, "delta_net_out"), Role::ssm_out, "linear_attn_out");
}

TensorId gated_attention(LayerBuilder& b, TensorId x) {
  const LayerHparams& layer = b.layer();
  const TensorId both = as_heads(b, b.linear(x, Role::attn_q, "attn_q_gate"), 2 * layer.dk, layer.n_head, "q_and_gate");
  const TensorId q = b.graph().slice(both, 0, layer.dk, b.name("attn_q"));
  const TensorId gate = b.graph().slice(both, layer.dk, layer.dk, b.name("attn_gate"));
  const TensorId k = as_heads(b, b.linear(x, Role::attn_k, "attn_k_raw"), layer.dk, layer.n_head_kv, "attn_k");
  const TensorId v = as_heads(b, b.linear(x, Role::attn_v, "attn_v_raw"), layer.dv, layer.n_head_kv, "attn_v");
  const TensorId q_normed = b.branch_norm(q, Role::attn_q_norm, "attn_q_norm");
  const TensorId k_normed = b.branch_norm(k, Role::attn_k_norm, "attn_k_norm");
  const TensorId o = attend(b, {q_normed, k_normed, v});
  const TensorId gated = b.gated(flat(b, gate, "attn_gate_flat"), o, ggml::Activation::sigmoid, "attn_gated");
  return b.linear(gated, Role::attn_output, "attn_out");
}

}  // namespace llama
