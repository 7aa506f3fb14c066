#include "cost.h"
#include "ggml/log.h"
#include "lowering.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<MoeRouteParams>();
  check::expect_counts(in, 1, 1, p.has_selection_bias ? 2 : 1);
  const Tensor& x = check::values(in, 0, "x");
  check::require(in, p.n_expert > 0 && p.n_used > 0 && p.n_used <= p.n_expert,
                 strf("%d of %d experts used", p.n_used, p.n_expert));
  (void)check::matrix(in, 0, "router", {.k = x.shape[0], .n = p.n_expert});
  if (p.has_selection_bias) {
    const Shape per_expert(p.n_expert);
    check::vector(in, 1, "selection bias", std::span(&per_expert, 1));
  }
  return {{DType::i32, Shape(p.n_used, x.shape[1]), x.rows}, {DType::f32, Shape(p.n_used, x.shape[1]), x.rows}};
}

TensorId probabilities(Lowering& to, const Node& node) {
  const auto& p = std::get<MoeRouteParams>(node.params);
  Chain chain = project(to, node.slots[0], node.src[0], "logits");
  switch (p.gating) {
    case Gating::softmax:
      chain.then(Op::softmax, SoftmaxParams{});
      break;
    case Gating::sigmoid:
      chain.then(Op::unary, UnaryParams{UnaryKind::activation, Activation::sigmoid, 1.0f});
      break;
    case Gating::sqrt_softplus:
      chain.then(Op::unary, UnaryParams{UnaryKind::activation, Activation::softplus, 1.0f});
      chain.then(Op::unary, UnaryParams{UnaryKind::sqrt, Activation::none, 1.0f});
      break;
    case Gating::softmax_selected:
      break;
  }
  return chain.finish();
}

void decompose(Lowering& to, const Node& node) {
  const auto& p = std::get<MoeRouteParams>(node.params);
  const TensorId probs = probabilities(to, node);
  TensorId choice = probs;
  if (p.has_selection_bias) choice = to.emit({Op::add, BinaryParams{}, {probs, node.slots[1].weight}, {}}, "choice");
  to.emit_into(node.dst[0],
               {Op::top_k, TopKParams{p.n_used, p.n_groups, p.n_groups_used, p.min_used, p.keep_ratio}, {choice}, {}});
  const float scale = p.scale == 0.0f ? 1.0f : p.scale;  // files say 0 for "do not scale"
  const GatherParams gather{p.normalise, p.gating == Gating::softmax_selected, scale};
  to.emit_into(node.dst[1], {Op::gather, gather, {probs, node.dst[0]}, {}});
}

}  // namespace

const OpDef k_moe_route{.name = "moe_route",
                        .shape = shape,
                        .decompose = decompose,
                        .cost = cost::matmul,
                        .shard = {},
                        .takes_adapters = true};

}  // namespace ggml
