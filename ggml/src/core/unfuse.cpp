#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ggml/fusion.h"
#include "ops/lowering.h"

namespace ggml {
namespace {

/// Gate and up as products of their own, then the activation, then down.
void split_ffn(Lowering& to, const Node& node) {
  const auto& p = std::get<FfnParams>(node.params);
  const auto product = [&](TensorId x, const Slot& slot) {
    return Lowering::Step{Op::linear, LinearParams{}, {x}, {slot}};
  };
  std::vector<TensorId> inner;
  for (std::size_t i = 0; i + 1 < node.slots.size(); ++i) {
    const std::string_view what = p.fused_gate_up ? "gate_up" : i == 0 ? "gate" : "up";
    inner.push_back(to.emit(product(node.src[0], node.slots[i]), what));
  }
  const TensorId hidden = to.emit({Op::gated, GatedParams{p.act, p.limit}, std::move(inner), {}}, "gated");
  to.emit_into(node.dst[0], product(hidden, node.slots.back()));
}

/// What each expert gives in one op, then its weight, then the sum.
void split_sum(Lowering& to, const Node& node) {
  MoeFfnParams p = std::get<MoeFfnParams>(node.params);
  const WeightedSumParams all{p.expert_begin, p.expert_end};
  p.summed = false;
  const TensorId ids = node.src[1], weights = node.src[2];
  const TensorId each = to.emit({Op::moe_ffn, p, {node.src[0], ids}, node.slots}, "each");
  const Shape pairs = to.at(weights).shape;
  const TensorId factors = to.view(weights, Shape(1, pairs[0], pairs[1]));
  const TensorId weighted = to.emit({Op::mul, BinaryParams{}, {each, factors}, {}}, "weighted");
  to.emit_into(node.dst[0], {Op::weighted_sum, all, {weighted, ids}, {}});
}

/// The graph with every node for which `wanted` is true replaced by what `split` makes of it.
template <class Wanted, class Split>
Graph replace(const Graph& graph, Wanted wanted, Split split) {
  Graph result;
  result.tensors = graph.tensors;
  result.token_bucket = graph.token_bucket;
  result.output_bucket = graph.output_bucket;
  for (const Node& node : graph.nodes) {
    if (!wanted(node)) {
      result.nodes.push_back(node);
      continue;
    }
    Lowering to(result, node);
    split(to, node);
  }
  return result;
}

bool is_gated_ffn(const Node& node) {
  return node.op == Op::ffn && std::get<FfnParams>(node.params).gated;
}

/// With the weights on the input there is nothing to weight behind the experts.
bool is_weighted_moe(const Node& node) {
  return node.op == Op::moe_ffn && !std::get<MoeFfnParams>(node.params).weight_on_input;
}

}  // namespace

Graph unfuse(const Graph& graph, const Fusion& fusion) {
  Graph result = graph;
  if (!fusion.up_gate) result = replace(result, is_gated_ffn, split_ffn);
  if (!fusion.expert_sum) result = replace(result, is_weighted_moe, split_sum);
  if (!fusion.experts)
    result = decompose(
        result, [](const Graph&, const Node& node, const void*) { return node.op != Op::moe_ffn; }, nullptr);
  return result;
}

}  // namespace ggml
