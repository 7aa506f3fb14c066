#include "cost.h"
#include "ggml/log.h"
#include "lowering.h"
#include "rope_check.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;
}  // namespace

std::vector<TensorDesc> rope_shape(const OpInputs& in, std::size_t max_tensors) {
  const auto& p = in.get<RopeParams>();
  const std::size_t first = p.has_factors ? 2 : 1;
  check::expect_counts(in, first + 1, first + max_tensors, 0);
  const Tensor& positions = check::integers(in, 0, "positions");
  check::require(in, p.layout == RopeLayout::none || (p.n_rot > 0 && p.n_rot % 2 == 0),
                 strf("rotates %d values of a head, expected a positive even number", p.n_rot));
  if (p.has_factors) {
    const Tensor& factors = check::values(in, 1, "factors");
    check::expect_shape(in, factors, "frequency factors", Shape(p.n_rot / 2));
  }
  std::vector<TensorDesc> results;
  for (std::size_t i = first; i < in.src.size(); ++i) {
    const Tensor& x = check::values(in, i, "x");
    check::require(
        in, p.first >= 0 && p.first + p.n_rot <= x.shape[0],
        strf("rotates %d values from %d on of heads of %lld", p.n_rot, p.first, static_cast<long long>(x.shape[0])));
    check::expect_extent(in, x, "x", 2, positions.shape[0]);
    results.push_back({DType::f32, x.shape, x.rows});
  }
  return results;
}

namespace {

std::vector<TensorDesc> shape(const OpInputs& in) {
  return rope_shape(in, 4);
}

void decompose(Lowering& to, const Node& node) {
  const auto& p = std::get<RopeParams>(node.params);
  const std::size_t first = p.has_factors ? 2 : 1;
  for (std::size_t i = first; i < node.src.size(); ++i) {
    std::vector<TensorId> src(node.src.begin(), node.src.begin() + static_cast<std::ptrdiff_t>(first));
    src.push_back(node.src[i]);
    to.emit_into(node.dst[i - first], {Op::rotate, p, std::move(src), {}});
  }
}

}  // namespace

const OpDef k_rope{.name = "rope",
                   .shape = shape,
                   .decompose = decompose,
                   .cost = cost::elementwise,
                   .shard = {PlacementAxis::heads, ShardResult::slice}};

}  // namespace ggml
