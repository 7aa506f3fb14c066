#include "cost.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 2, 2, 0);
  const Tensor& x = check::values(in, 0, "x");
  const Tensor& ids = check::integers(in, 1, "ids");
  if (x.rows != Rows::fixed || x.shape[1] != 1) check::expect_shape(in, x, "x", Shape(x.shape[0], ids.shape[1]));
  return {{DType::f32, ids.shape, ids.rows}};
}

}  // namespace

const OpDef k_gather{.name = "gather", .shape = shape, .decompose = nullptr, .cost = cost::elementwise, .shard = {}};

}  // namespace ggml
