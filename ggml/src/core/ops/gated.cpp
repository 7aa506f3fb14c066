#include "cost.h"
#include "ggml/log.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 1, 2, 0);
  const Tensor& gate = check::values(in, 0, "gate");
  Shape result = gate.shape;
  if (in.src.size() == 2) {
    check::expect_shape(in, check::values(in, 1, "up"), "up", gate.shape);
  } else {
    check::require(in, result[0] % 2 == 0,
                   strf("%s of %lld values cannot be halved", gate.name.c_str(), static_cast<long long>(result[0])));
    result[0] /= 2;
  }
  return {{DType::f32, result, gate.rows}};
}

}  // namespace

const OpDef k_gated{.name = "gated", .shape = shape, .decompose = nullptr, .cost = cost::elementwise, .shard = {}};

}  // namespace ggml
