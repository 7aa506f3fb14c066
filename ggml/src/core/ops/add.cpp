#include <algorithm>

#include "binary_check.h"
#include "cost.h"
#include "ggml/log.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;
}  // namespace

std::vector<TensorDesc> binary_shape(const OpInputs& in) {
  check::expect_counts(in, 2, 2, 0);
  const Tensor& a = check::values(in, 0, "a");
  const Tensor& b = check::values(in, 1, "b");
  Shape result;
  for (int axis = 0; axis < kMaxDims; ++axis) {
    result[axis] = std::max(a.shape[axis], b.shape[axis]);
    check::require(in, std::min(a.shape[axis], b.shape[axis]) == 1 || a.shape[axis] == b.shape[axis],
                   strf("operands %s (%s) and %s (%s) do not fit together", a.shape.text().c_str(), a.name.c_str(),
                        b.shape.text().c_str(), b.name.c_str()));
  }
  return {{DType::f32, result, a.rows == Rows::fixed ? b.rows : a.rows}};
}

const OpDef k_add{.name = "add",
                  .shape = binary_shape,
                  .decompose = nullptr,
                  .cost = cost::elementwise,
                  .shard = {},
                  .in_place = true};

}  // namespace ggml
