#include "cost.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 2, 3, 0);
  const Tensor& y = check::values(in, 0, "y");
  const Tensor& ids = check::integers(in, 1, "ids");
  check::expect_shape(in, y, "y", Shape(y.shape[0], ids.shape[0], ids.shape[1]));
  if (in.src.size() > 2) check::expect_shape(in, check::values(in, 2, "weights"), "weights", ids.shape);
  return {{DType::f32, Shape(y.shape[0], ids.shape[1]), y.rows}};
}

}  // namespace

const OpDef k_weighted_sum{.name = "weighted_sum",
                           .shape = shape,
                           .decompose = nullptr,
                           .cost = cost::elementwise,
                           .shard = {PlacementAxis::experts, ShardResult::partial_sum}};

}  // namespace ggml
