#include "ggml/hadamard.h"

#include <cmath>

#include "cost.h"
#include "ggml/log.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 1, 1, 0);
  const Tensor& x = check::values(in, 0, "x");
  check::require(
      in, has_hadamard(x.shape[0]),
      strf("a Hadamard transform of %lld elements, expected a power of two", static_cast<long long>(x.shape[0])));
  return {{DType::f32, x.shape, x.rows}};
}

/// An addition per element and halving, and the factor.
Cost hadamard_cost(const Graph& graph, const Node& node, int tokens) {
  Cost cost = cost::elementwise(graph, node, tokens);
  cost.flops *= std::log2(static_cast<double>(graph.at(node.src[0]).shape[0])) + 1;
  return cost;
}

}  // namespace

const OpDef k_hadamard{.name = "hadamard",
                       .shape = shape,
                       .decompose = nullptr,
                       .cost = hadamard_cost,
                       .shard = {PlacementAxis::heads, ShardResult::slice}};

}  // namespace ggml
