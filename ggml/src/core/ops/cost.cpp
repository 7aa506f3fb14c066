#include "cost.h"

#include <algorithm>
#include <cmath>

#include "core/graph_walk.h"

namespace ggml::cost {

namespace {

double share(const Graph& graph, const Tensor& tensor, int tokens) {
  if (tensor.rows != Rows::tokens || graph.token_bucket <= 0) return 1.0;
  return static_cast<double>(tokens) / graph.token_bucket;
}

double bytes(const Tensor& tensor) {
  return static_cast<double>(tensor_bytes(tensor.type, tensor.shape));
}

bool is_weight(const Graph& graph, const Tensor& tensor) {
  return tensor.role == TensorRole::weight ||
         (tensor.role == TensorRole::view && graph.at(tensor.base).role == TensorRole::weight);
}

void add_activations(Cost& cost, const Graph& graph, const Node& node, int tokens) {
  for (const std::vector<TensorId>* list : {&node.src, &node.dst})
    for (TensorId id : *list) {
      const Tensor& t = graph.at(id);
      if (!is_weight(graph, t) && t.role != TensorRole::port) cost.act_bytes += bytes(t) * share(graph, t, tokens);
    }
}

void add_weights(Cost& cost, const Graph& graph, const Node& node, double rows) {
  auto add = [&](TensorId id) {
    if (!id.valid()) return;
    const Tensor& t = graph.at(id);
    if (!is_weight(graph, t)) return;
    cost.weight_bytes += bytes(t);
    if (t.shape[1] > 1) cost.flops += 2.0 * static_cast<double>(t.shape.elements()) * rows;
  };
  for (const Slot& slot : node.slots) for_each_of_slot(slot, add);
  if (node.slots.empty())
    for (TensorId id : node.src) add(id);
}

double result_elements(const Graph& graph, const Node& node, int tokens) {
  double n = 0;
  for (TensorId id : node.dst)
    n += static_cast<double>(graph.at(id).shape.elements()) * share(graph, graph.at(id), tokens);
  return n;
}

int real_rows(const Graph& graph, const Node& node, int tokens) {
  for (TensorId id : node.src)
    if (graph.at(id).rows == Rows::outputs) return std::min(tokens, graph.output_bucket);
  return tokens;
}

}  // namespace

Cost matmul(const Graph& graph, const Node& node, int tokens) {
  Cost cost;
  add_activations(cost, graph, node, tokens);
  add_weights(cost, graph, node, real_rows(graph, node, tokens));
  return cost;
}

Cost elementwise(const Graph& graph, const Node& node, int tokens) {
  Cost cost;
  add_activations(cost, graph, node, tokens);
  add_weights(cost, graph, node, 0);
  cost.flops = result_elements(graph, node, tokens);
  return cost;
}

Cost table(const Graph& graph, const Node& node, int tokens) {
  Cost cost;
  const Tensor& rows = graph.at(node.slots.empty() ? node.src[0] : node.slots[0].weight);
  const double n = real_rows(graph, node, tokens);
  const double read = static_cast<double>(row_bytes(rows.type, rows.shape[0])) * n;
  (is_weight(graph, rows) ? cost.weight_bytes : cost.act_bytes) += read;
  cost.act_bytes += static_cast<double>(rows.shape[0]) * 4.0 * n;
  cost.flops = static_cast<double>(rows.shape[0]) * n;
  return cost;
}

Cost experts(const Graph& graph, const Node& node, int tokens) {
  Cost cost;
  add_activations(cost, graph, node, tokens);
  const Tensor& ids = graph.at(node.op == Op::moe_ffn ? node.src[1] : node.src[2]);
  const double used = static_cast<double>(ids.shape[0]);
  auto add_stack = [&](TensorId id) {
    if (!id.valid()) return;
    const Tensor& w = graph.at(id);
    if (!is_weight(graph, w)) return;
    const double n_expert = static_cast<double>(w.shape[2] > 1 ? w.shape[2] : w.shape[1]);
    const double touched = n_expert * (1.0 - std::pow(1.0 - std::min(1.0, used / n_expert), tokens));
    cost.weight_bytes += bytes(w) * touched / n_expert;
    if (w.shape[2] > 1) cost.flops += 2.0 * static_cast<double>(w.shape[0] * w.shape[1]) * used * tokens;
  };
  if (node.op == Op::moe_ffn) {
    for (const Slot& slot : node.slots) for_each_of_slot(slot, add_stack);
  } else {
    add_stack(node.src[0]);
  }
  return cost;
}

Cost attention(const Graph& graph, const Node& node, int tokens) {
  Cost cost;
  add_activations(cost, graph, node, tokens);
  const KvLayout* kv = nullptr;
  if (const auto* append = std::get_if<KvAppendParams>(&node.params)) kv = &append->kv;
  const auto* attn = std::get_if<AttentionParams>(&node.params);
  if (attn != nullptr) kv = &attn->kv;
  if (kv != nullptr) cost.kv_bytes = static_cast<double>(kv->block_bytes()) / kKvBlockTokens * tokens;
  if (attn != nullptr) cost.flops = 2.0 * attn->n_head * (attn->kv.dk + attn->kv.dv) * tokens;
  return cost;
}

}  // namespace ggml::cost
