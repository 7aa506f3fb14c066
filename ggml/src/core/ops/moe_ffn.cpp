#include "cost.h"
#include "ggml/log.h"
#include "lowering.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<MoeFfnParams>();
  const bool separate = p.gated && !p.fused_gate_up;
  const std::size_t n_src = p.summed ? 3 : 2;
  check::expect_counts(in, n_src, n_src, separate ? 3 : 2);
  check::require(in, p.summed || !p.weight_on_input, "weights on the input of experts that are not summed");
  const Tensor& x = check::values(in, 0, "x");
  const int end = p.expert_end == 0 ? p.n_expert : p.expert_end;
  check::require(in, p.n_expert > 0 && p.expert_begin >= 0 && p.expert_begin <= end && end <= p.n_expert,
                 strf("experts %d to %d of %d", p.expert_begin, end, p.n_expert));
  const Shape pairs(p.n_used, x.shape[1]);
  check::expect_shape(in, check::integers(in, 1, "ids"), "ids", pairs);
  if (p.summed) check::expect_shape(in, check::values(in, 2, "weights"), "weights", pairs);
  std::int64_t width = 0;
  if (separate) {
    width = check::matrix(in, 0, "gate", {.k = x.shape[0], .experts = p.n_expert});
    (void)check::matrix(in, 1, "up", {.k = x.shape[0], .n = width, .experts = p.n_expert});
  } else {
    width = check::matrix(in, 0, p.gated ? "gate_up" : "up", {.k = x.shape[0], .experts = p.n_expert});
    check::require(in, !p.gated || width % 2 == 0,
                   strf("slot gate_up has %lld rows, expected an even number", static_cast<long long>(width)));
    if (p.gated) width /= 2;
  }
  const std::int64_t n =
      check::matrix(in, in.slots.size() - 1, "down", {.k = width, .n = x.shape[0], .experts = p.n_expert});
  return {{DType::f32, p.summed ? Shape(n, x.shape[1]) : Shape(n, p.n_used, x.shape[1]), x.rows}};
}

void decompose(Lowering& to, const Node& node) {
  const auto& p = std::get<MoeFfnParams>(node.params);
  const ExpertRange experts{node.src[1], p.expert_begin, p.expert_end};
  const Shape rows = to.at(node.src[0]).shape;
  TensorId x = to.view(node.src[0], Shape(rows[0], 1, rows[1]));
  if (p.weight_on_input) {
    const TensorId weights = to.view(node.src[2], Shape(1, p.n_used, rows[1]));
    x = to.emit({Op::mul, BinaryParams{}, {x, weights}, {}}, "weighted_input");
  }
  std::vector<TensorId> inner;
  const char* names[] = {"gate", "up"};
  for (std::size_t i = 0; i + 1 < node.slots.size(); ++i) {
    const char* what = !p.gated ? "up" : p.fused_gate_up ? "gate_up" : names[i];
    inner.push_back(project_experts(to, node.slots[i], x, experts, what).finish());
  }
  const TensorId hidden =
      p.gated ? to.emit({Op::gated, GatedParams{p.act, p.limit}, std::move(inner), {}}, "gated")
              : to.emit({Op::unary, UnaryParams{UnaryKind::activation, p.act, 1.0f}, std::move(inner), {}}, "act");
  Chain down = project_experts(to, node.slots.back(), hidden, experts, "down");
  if (!p.summed) return down.finish_into(node.dst[0]);
  const TensorId y = down.finish();
  std::vector<TensorId> src{y, node.src[1]};
  if (!p.weight_on_input) src.push_back(node.src[2]);
  to.emit_into(node.dst[0], {Op::weighted_sum, WeightedSumParams{p.expert_begin, p.expert_end}, std::move(src), {}});
}

}  // namespace

const OpDef k_moe_ffn{.name = "moe_ffn",
                      .shape = shape,
                      .decompose = decompose,
                      .cost = cost::experts,
                      .shard = {PlacementAxis::experts, ShardResult::partial_sum},
                      .takes_adapters = true};

}  // namespace ggml
