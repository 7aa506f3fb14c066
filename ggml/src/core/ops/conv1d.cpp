#include "cost.h"
#include "ggml/log.h"
#include "shape_check.h"
#include "state_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<Conv1dParams>();
  check::expect_counts(in, 3, 3, 1);
  const Tensor& x = check::values(in, 0, "x");
  check::require(in, p.kernel > 1 && (p.act == Activation::none || p.act == Activation::silu),
                 strf("a convolution over %d tokens", p.kernel));
  const Shape filters(p.kernel, x.shape[0]);
  check::vector(in, 0, "filters", std::span(&filters, 1));
  state_check::inputs(in, 1, p.state, x.shape[0] * (p.kernel - 1));
  return {{DType::f32, x.shape, x.rows}};
}

Cost conv_cost(const Graph& graph, const Node& node, int tokens) {
  const auto& p = std::get<Conv1dParams>(node.params);
  const auto channels = static_cast<double>(graph.at(node.src[0]).shape[0]);
  Cost cost = cost::elementwise(graph, node, tokens);
  cost.flops = 2.0 * p.kernel * channels * tokens;
  cost.kv_bytes = 2.0 * (p.kernel - 1) * channels * sizeof(float);
  return cost;
}

}  // namespace

const OpDef k_conv1d{.name = "conv1d",
                     .shape = shape,
                     .decompose = nullptr,
                     .cost = conv_cost,
                     .shard = {PlacementAxis::heads, ShardResult::slice}};

}  // namespace ggml
