#include "cost.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 2, 2, 0);
  const Tensor& a = check::values(in, 0, "a");
  const Tensor& b = check::values(in, 1, "b");
  if (b.shape[1] != 1) check::expect_extent(in, b, "b", 1, a.shape[1]);
  check::expect_extent(in, b, "b", 2, a.shape[2]);
  Shape result = a.shape;
  result[0] += b.shape[0];
  return {{DType::f32, result, a.rows}};
}

}  // namespace

const OpDef k_concat{.name = "concat", .shape = shape, .decompose = nullptr, .cost = cost::elementwise, .shard = {}};

}  // namespace ggml
