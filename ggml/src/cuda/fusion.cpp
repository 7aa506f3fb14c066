#include "cuda/fusion.h"

#include <algorithm>
#include <set>

#include "core/graph_walk.h"
#include "cuda/kernels/activations.h"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/products.h"
#include "cuda/ops/heads.h"
#include "cuda/ops/projection.h"
#include "cuda/ops/single_row.h"
#include "ggml/log.h"

namespace ggml::cuda {
namespace {

/// How often each tensor is read.
std::vector<int> count_reads(const Graph& graph) {
  std::vector<int> reads(graph.tensors.size(), 0);
  for (const Node& node : graph.nodes) for_each_read(node, [&](TensorId id) { ++reads[index(base_of(graph, id))]; });
  return reads;
}

bool is_private(const Graph& graph, TensorId id) {
  const Tensor& t = graph.at(id);
  return t.role == TensorRole::activation && !t.port.valid() && !t.observed;
}

/// Query, key and value, their rotation and attention as consecutive nodes from `i` on, with nothing else reading what
/// lies between.
bool is_attention_block(const Graph& graph, std::size_t i, const std::vector<int>& reads) {
  if (i + 2 >= graph.nodes.size()) return false;
  const Node &qkv = graph.nodes[i], &rope = graph.nodes[i + 1], &attention = graph.nodes[i + 2];
  if (qkv.op != Op::qkv || rope.op != Op::rope || attention.op != Op::attention) return false;
  const auto& projections = std::get<QkvParams>(qkv.params);
  if (projections.clamp > 0 || projections.norm_full_row) return false;
  if (graph.at(qkv.dst[0]).shape[2] > kMaxVectorRows) return false;
  if (projections.dk > kMostHeadValues || projections.dv > kMostHeadValues) return false;
  const std::size_t first = std::get<RopeParams>(rope.params).has_factors ? 2 : 1;
  if (rope.dst.size() != 2 || rope.src[first] != qkv.dst[0] || rope.src[first + 1] != qkv.dst[1]) return false;
  if (attention.src[0] != rope.dst[0] || attention.src[1] != rope.dst[1] || attention.src[2] != qkv.dst[2])
    return false;
  for (const TensorId id : {qkv.dst[0], qkv.dst[1], qkv.dst[2], rope.dst[0], rope.dst[1]}) {
    if (!is_private(graph, id) || reads[index(id)] != 1) return false;
  }
  return true;
}

/// Of a single row, what join_heads_at() made of the rotation becomes a part of the attention after it.
void move_heads_to_attention(LoweredGraph& lowered, std::size_t i, const HeadsParams& params) {
  Node &rope = lowered.graph.nodes[i], &attention = lowered.graph.nodes[i + 1];
  const auto q = static_cast<std::ptrdiff_t>(params.rope.has_factors ? 2 : 1);
  const HeadsOfRow heads{params, rope.slots};
  attention.src[0] = rope.src[static_cast<std::size_t>(q)];
  attention.src.insert(attention.src.end(),
                       {rope.src[static_cast<std::size_t>(q) + 1], rope.src[static_cast<std::size_t>(q) + 2]});
  attention.src.insert(attention.src.end(), rope.src.begin(), rope.src.begin() + q);
  lowered.binders[i + 1] = [heads](const BindContext& c, const Node& node, Carver&) {
    return bind_single_attention(c, node, heads);
  };
  lowered.notes[i + 1] += ", " + lowered.notes[i];
  const auto at = static_cast<std::ptrdiff_t>(i);
  lowered.graph.nodes.erase(lowered.graph.nodes.begin() + at);
  lowered.binders.erase(lowered.binders.begin() + at);
  lowered.notes.erase(lowered.notes.begin() + at);
}

/// The nodes become: products | norms, rotation, append | attention.
void join_heads_at(LoweredGraph& lowered, std::size_t i) {
  Graph& graph = lowered.graph;
  Node &qkv = graph.nodes[i], &rope = graph.nodes[i + 1], &attention = graph.nodes[i + 2];
  auto& projections = std::get<QkvParams>(qkv.params);
  const auto& attend = std::get<AttentionParams>(attention.params);
  const HeadsParams params{std::get<RopeParams>(rope.params), attend.kv, attend.n_head, projections.norm_eps};
  if (projections.has_qk_norm) {
    rope.slots.assign(qkv.slots.end() - 2, qkv.slots.end());
    qkv.slots.resize(qkv.slots.size() - 2);
    projections.has_qk_norm = false;
  }
  const std::vector<TensorId> cache(attention.src.begin() + 3, attention.src.end());
  rope.src.push_back(qkv.dst[2]);
  rope.src.insert(rope.src.end(), cache.begin(), cache.end());
  rope.dst.resize(1);
  attention.op = Op::attn_dense;
  attention.src.resize(1);
  attention.src.insert(attention.src.end(), cache.begin(), cache.end());
  lowered.binders[i + 1] = [params](const BindContext& c, const Node& node, Carver&) {
    return bind_heads(c, params, node);
  };
  lowered.binders[i + 2] = implementation(Op::attn_dense)->bind;
  lowered.notes[i + 1] = strf("rope %s: fused with the norms of q and k and kv_append", rope.name.c_str());
  if (attention_takes_heads(graph, attention)) move_heads_to_attention(lowered, i + 1, params);
}

/// The slots whose matrices multiply the node's first source.
std::size_t input_slots(const Node& node) {
  switch (node.op) {
    case Op::linear:
      return 1;
    case Op::qkv:
      return std::get<QkvParams>(node.params).fused ? 1 : 3;
    case Op::ffn:
    case Op::moe_ffn:
      return node.slots.size() - 1;
    default:
      return 0;
  }
}

/// How many forms of its result the node can leave.
std::size_t most_forms(const Graph& graph, const Node& node) {
  const Tensor& y = graph.at(node.dst[0]);
  if (node.op == Op::norm) {
    const int heads = node.slots.empty() ? 1 : static_cast<int>(graph.at(node.slots[0].weight).shape[1]);
    const bool aligned = std::none_of(node.src.begin(), node.src.end(),
                                      [&](TensorId id) { return graph.at(id).role == TensorRole::view; });
    return aligned && norm_fits_registers(static_cast<int>(y.shape[0]), heads) ? 2 : 0;
  }
  if (node.op != Op::attention && node.op != Op::attn_dense) return 0;
  return attention_rounds_result(std::get<AttentionParams>(node.params), static_cast<int>(y.shape[1])) ? 1 : 0;
}

}  // namespace

void join_heads(LoweredGraph& lowered) {
  const std::vector<int> reads = count_reads(lowered.graph);
  for (std::size_t i = 0; i < lowered.graph.nodes.size(); ++i) {
    if (is_attention_block(lowered.graph, i, reads)) join_heads_at(lowered, i);
  }
}

void share_rounding(LoweredGraph& lowered) {
  Graph& graph = lowered.graph;
  for (std::size_t p = 0; p < graph.nodes.size(); ++p) {
    if (graph.nodes[p].dst.empty()) continue;
    const TensorId values = graph.nodes[p].dst[0];
    const Shape shape = graph.at(values).shape;
    const auto rows = static_cast<int>(shape.rows());
    const std::size_t most = most_forms(graph, graph.nodes[p]);
    if (most == 0 || rows > kMaxVectorRows || graph.at(values).role != TensorRole::activation) continue;
    std::set<ActType> forms;
    std::vector<std::size_t> readers;
    for (std::size_t i = p + 1; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      const std::size_t n_slots = input_slots(node);
      if (n_slots == 0 || node.src[0] != values) continue;
      readers.push_back(i);
      for (std::size_t s = 0; s < n_slots; ++s) {
        const ActType act = type_info(graph.at(node.slots[s].weight).type).act;
        if (is_quantised(act)) forms.insert(act);
      }
    }
    if (forms.empty() || forms.size() > most) continue;
    for (const ActType act : forms) {
      Tensor rounded;
      rounded.name = graph.at(values).name + " (rounded)";
      rounded.type = DType::i32;
      rounded.shape = Shape(static_cast<std::int64_t>(rounded_bytes(act, static_cast<int>(shape[0]), rows) / 4));
      graph.tensors.push_back(std::move(rounded));
      const TensorId id(static_cast<std::int32_t>(graph.tensors.size()) - 1);
      graph.nodes[p].dst.push_back(id);
      for (const std::size_t i : readers) graph.nodes[i].src.push_back(id);
      lowered.rounded.push_back({values, act, id});
    }
  }
}

}  // namespace ggml::cuda
