#include "cost.h"
#include "lowering.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<NormParams>();
  check::expect_counts(in, 1, 2, p.has_weight ? 1 : 0);
  const Tensor& x = check::values(in, 0, "x");
  if (in.src.size() > 1) check::expect_shape(in, check::values(in, 1, "residual"), "residual", x.shape);
  if (p.has_weight) {
    const Shape allowed[] = {Shape(x.shape[0]), Shape(x.shape[0], x.shape[1])};
    const bool per_head = x.shape[2] > 1 || in.graph.token_bucket == 1;  // else axis 1 counts tokens
    check::vector(in, 0, "weight", std::span(allowed, per_head ? 2 : 1));
  }
  std::vector<TensorDesc> results{{DType::f32, x.shape, x.rows}};
  if (in.src.size() > 1) results.push_back(results.front());
  return results;
}

void decompose(Lowering& to, const Node& node) {
  const auto& p = std::get<NormParams>(node.params);
  TensorId x = node.src[0];
  if (node.src.size() > 1) {
    to.emit_into(node.dst[1], {Op::add, BinaryParams{}, {x, node.src[1]}, {}});
    x = node.dst[1];
  }
  Chain chain(to, "normalised", {Op::normalise, NormaliseParams{p.kind, p.eps}, {x}, {}});
  if (p.has_weight) {
    chain.then(Op::mul, BinaryParams{}, {node.slots[0].weight});
    if (node.slots[0].bias.valid()) chain.then(Op::add, BinaryParams{}, {node.slots[0].bias});
  }
  chain.finish_into(node.dst[0]);
}

}  // namespace

const OpDef k_norm{.name = "norm", .shape = shape, .decompose = decompose, .cost = cost::elementwise, .shard = {}};

}  // namespace ggml
