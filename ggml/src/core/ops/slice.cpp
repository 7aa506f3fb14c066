#include "cost.h"
#include "ggml/log.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<SliceParams>();
  check::expect_counts(in, 1, 1, 0);
  const Tensor& x = check::values(in, 0, "x");
  check::require(in, p.begin >= 0 && p.count > 0 && p.begin + p.count <= x.shape[0],
                 strf("elements %d to %d of %lld", p.begin, p.begin + p.count, static_cast<long long>(x.shape[0])));
  Shape result = x.shape;
  result[0] = p.count;
  return {{DType::f32, result, x.rows}};
}

}  // namespace

const OpDef k_slice{.name = "slice", .shape = shape, .decompose = nullptr, .cost = cost::elementwise, .shard = {}};

}  // namespace ggml
