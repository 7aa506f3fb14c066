#include "cost.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 1, 1, 0);
  const Tensor& x = check::values(in, 0, "x");
  return {{DType::f32, x.shape, x.rows}};
}

}  // namespace

const OpDef k_unary{
    .name = "unary", .shape = shape, .decompose = nullptr, .cost = cost::elementwise, .shard = {}, .in_place = true};

}  // namespace ggml
