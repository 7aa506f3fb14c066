#include "cost.h"
#include "ggml/log.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<MulMatHeadsParams>();
  check::expect_counts(in, 2, 3, in.slots.empty() ? 0 : 1);
  const Tensor& w = check::source(in, 0, "W");
  const Tensor& x = check::values(in, 1, "x");
  check::require(
      in, p.n_head > 0 && p.begin >= 0 && p.count > 0 && p.begin + p.count <= p.rows_per_head,
      strf("rows %d to %d of %d for each of %d heads", p.begin, p.begin + p.count, p.rows_per_head, p.n_head));
  check::expect_extent(in, w, "W", 0, x.shape[0]);
  check::require(in, w.shape.rows() == static_cast<std::int64_t>(p.rows_per_head) * p.n_head,
                 strf("%s is %s, expected %d rows for each of %d heads", w.name.c_str(), w.shape.text().c_str(),
                      p.rows_per_head, p.n_head));
  if (x.shape[1] != 1) check::expect_extent(in, x, "x", 1, p.n_head);
  if (in.src.size() > 2) check::expect_shape(in, check::values(in, 2, "tap"), "tap", x.shape);
  return {{DType::f32, Shape(p.count, p.n_head, x.shape[2]), x.rows}};
}

}  // namespace

const OpDef k_mul_mat_heads{.name = "mul_mat_heads",
                            .shape = shape,
                            .decompose = nullptr,
                            .cost = cost::matmul,
                            .shard = {PlacementAxis::heads, ShardResult::slice}};

}  // namespace ggml
