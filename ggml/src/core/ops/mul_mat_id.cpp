#include "cost.h"
#include "ggml/log.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 3, 4, in.slots.empty() ? 0 : 1);
  const Tensor& w = check::source(in, 0, "W");
  const Tensor& x = check::values(in, 1, "x");
  const Tensor& ids = check::integers(in, 2, "ids");
  check::require(in, w.type != DType::i32, strf("%s is I32: integers are no weights", w.name.c_str()));
  check::expect_shape(in, w, "W", Shape(x.shape[0], w.shape[1], w.shape[2]));
  const std::int64_t per_token = x.shape[1] == 1 ? 1 : ids.shape[0];
  check::expect_shape(in, x, "x", Shape(x.shape[0], per_token, ids.shape[1]));
  if (in.src.size() > 3) check::expect_shape(in, check::values(in, 3, "tap"), "tap", x.shape);
  return {{DType::f32, Shape(w.shape[1], ids.shape[0], ids.shape[1]), x.rows}};
}

}  // namespace

const OpDef k_mul_mat_id{.name = "mul_mat_id",
                         .shape = shape,
                         .decompose = nullptr,
                         .cost = cost::experts,
                         .shard = {PlacementAxis::experts, ShardResult::partial_sum}};

}  // namespace ggml
