#include "cost.h"
#include "lowering.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 1, 1, 1);
  const Tensor& x = check::values(in, 0, "x");
  Shape result = x.shape;
  result[0] = check::matrix(in, 0, "weight", {.k = x.shape[0]});
  return {{DType::f32, result, x.rows}};
}

void decompose(Lowering& to, const Node& node) {
  project(to, node.slots[0], node.src[0], "product").finish_into(node.dst[0]);
}

}  // namespace

const OpDef k_linear{.name = "linear",
                     .shape = shape,
                     .decompose = decompose,
                     .cost = cost::matmul,
                     .shard = {PlacementAxis::rows, ShardResult::slice},
                     .takes_adapters = true};

}  // namespace ggml
