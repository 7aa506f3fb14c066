#include "cost.h"
#include "ggml/log.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 2, 3, in.slots.empty() ? 0 : 1);
  const Tensor& w = check::source(in, 0, "W");
  const Tensor& x = check::values(in, 1, "x");
  check::require(in, w.type != DType::i32, strf("%s is I32: integers are no weights", w.name.c_str()));
  check::expect_shape(in, w, "W", Shape(x.shape[0], w.shape[1]));
  if (in.src.size() > 2) check::expect_shape(in, check::values(in, 2, "tap"), "tap", x.shape);
  Shape result = x.shape;
  result[0] = w.shape[1];
  return {{DType::f32, result, x.rows}};
}

}  // namespace

const OpDef k_mul_mat{.name = "mul_mat",
                      .shape = shape,
                      .decompose = nullptr,
                      .cost = cost::matmul,
                      .shard = {PlacementAxis::rows, ShardResult::slice}};

}  // namespace ggml
