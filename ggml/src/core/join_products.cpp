#include "core/join_products.h"

#include <algorithm>
#include <vector>

#include "core/graph_walk.h"

namespace ggml {
namespace {

/// The node that writes each tensor; -1: none.
std::vector<int> writers(const Graph& graph) {
  std::vector<int> of(graph.tensors.size(), -1);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const TensorId id : graph.nodes[n].dst) of[index(id)] = static_cast<int>(n);
  return of;
}

/// The activation that the product reads before it was rounded; invalid where the product cannot be a `linear`.
TensorId unrounded(const Graph& graph, const Node& product, const std::vector<int>& writer, std::size_t n_before) {
  const Tensor& w = graph.at(product.src[0]);
  if (graph.at(base_of(graph, product.src[0])).role != TensorRole::weight || w.shape[2] != 1) return {};
  const TensorId x = product.src[1];
  const ActType form = type_info(w.type).act;
  if (form == ActType::f32) return x;
  // Results of decompositions are new tensors.
  if (index(x) < n_before || writer[index(x)] < 0) return {};
  const Node& rounding = graph.nodes[static_cast<std::size_t>(writer[index(x)])];
  if (rounding.op != Op::quantise_act || std::get<QuantiseActParams>(rounding.params).act != form) return {};
  return rounding.src[0];
}

}  // namespace

void join_products(Graph& graph, const Graph& before, const std::function<bool(const Graph&, const Node&)>& can_run) {
  const std::size_t n_before = before.tensors.size();
  const std::vector<int> writer = writers(graph);
  std::vector<bool> was_product(graph.tensors.size(), false);
  for (const Node& node : before.nodes)
    if (node.op == Op::mul_mat) was_product[index(node.dst[0])] = true;
  for (Node& node : graph.nodes) {
    if (node.op != Op::mul_mat || node.slots.size() > 1 || was_product[index(node.dst[0])]) continue;
    const TensorId x = unrounded(graph, node, writer, n_before);
    if (!x.valid()) continue;
    const bool tapped = !node.slots.empty() && node.slots[0].tapped;
    Node joined{Op::linear, LinearParams{}, {x}, {Slot{node.src[0], {}, {}, tapped}}, node.dst, node.name};
    if (can_run(graph, joined)) node = std::move(joined);
  }
  std::vector<int> uses(graph.tensors.size(), 0);
  for (const Node& node : graph.nodes) for_each_read(node, [&](TensorId id) { ++uses[index(base_of(graph, id))]; });
  const auto is_idle = [&](const Node& node) {
    return node.op == Op::quantise_act && index(node.dst[0]) >= n_before && uses[index(node.dst[0])] == 0;
  };
  graph.nodes.erase(std::remove_if(graph.nodes.begin(), graph.nodes.end(), is_idle), graph.nodes.end());
}

}  // namespace ggml
