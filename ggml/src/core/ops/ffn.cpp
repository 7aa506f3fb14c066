#include "cost.h"
#include "ggml/log.h"
#include "lowering.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<FfnParams>();
  const Tensor& x = check::values(in, 0, "x");
  check::expect_counts(in, 1, 1, p.gated && !p.fused_gate_up ? 3 : 2);
  std::int64_t width = 0;
  std::size_t down = 1;
  if (p.gated && p.fused_gate_up) {
    const std::int64_t both = check::matrix(in, 0, "gate_up", {.k = x.shape[0]});
    check::require(in, both % 2 == 0,
                   strf("slot gate_up has %lld rows, expected an even number", static_cast<long long>(both)));
    width = both / 2;
  } else if (p.gated) {
    width = check::matrix(in, 0, "gate", {.k = x.shape[0]});
    (void)check::matrix(in, 1, "up", {.k = x.shape[0], .n = width});
    down = 2;
  } else {
    width = check::matrix(in, 0, "up", {.k = x.shape[0]});
  }
  Shape result = x.shape;
  result[0] = check::matrix(in, down, "down", {.k = width});
  return {{DType::f32, result, x.rows}};
}

void decompose(Lowering& to, const Node& node) {
  const auto& p = std::get<FfnParams>(node.params);
  const TensorId x = node.src[0];
  TensorId hidden;
  if (!p.gated) {
    hidden =
        project(to, node.slots[0], x, "up").then(Op::unary, UnaryParams{UnaryKind::activation, p.act, 1.0f}).finish();
  } else {
    std::vector<TensorId> src;
    for (std::size_t i = 0; i + 1 < node.slots.size(); ++i)
      src.push_back(project(to, node.slots[i], x, p.fused_gate_up ? "gate_up" : i == 0 ? "gate" : "up").finish());
    hidden = to.emit({Op::gated, GatedParams{p.act, p.limit}, std::move(src), {}}, "gated");
  }
  project(to, node.slots.back(), hidden, "down").finish_into(node.dst[0]);
}

}  // namespace

const OpDef k_ffn{.name = "ffn",
                  .shape = shape,
                  .decompose = decompose,
                  .cost = cost::matmul,
                  .shard = {PlacementAxis::rows, ShardResult::partial_sum},
                  .takes_adapters = true};

}  // namespace ggml
