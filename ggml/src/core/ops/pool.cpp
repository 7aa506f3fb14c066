#include "cost.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 2, 2, 0);
  const Tensor& x = check::values(in, 0, "x");
  const Tensor& spans = check::integers(in, 1, "spans");
  check::expect_extent(in, spans, "spans", 0, static_cast<std::int64_t>(sizeof(AttnSpan) / sizeof(std::int32_t)));
  return {{DType::f32, Shape(x.shape[0], spans.shape[1]), Rows::outputs}};
}

}  // namespace

const OpDef k_pool{.name = "pool", .shape = shape, .decompose = nullptr, .cost = cost::elementwise, .shard = {}};

}  // namespace ggml
