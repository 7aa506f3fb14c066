#include "cost.h"
#include "ggml/log.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<TopKParams>();
  check::expect_counts(in, 1, 1, 0);
  const Tensor& x = check::values(in, 0, "x");
  const std::int64_t n = x.shape[0];
  check::require(in, p.k > 0 && p.k <= n, strf("%d of %lld values wanted", p.k, static_cast<long long>(n)));
  if (p.n_groups > 1) {
    const bool splits = n % p.n_groups == 0 && p.n_groups_used > 0 && p.n_groups_used <= p.n_groups;
    check::require(in, splits && p.k <= n / p.n_groups * p.n_groups_used,
                   strf("%d values from %d of %d groups of %lld values in all", p.k, p.n_groups_used, p.n_groups,
                        static_cast<long long>(n)));
  }
  return {{DType::i32, Shape(p.k, x.shape[1]), x.rows}};
}

}  // namespace

const OpDef k_top_k{.name = "top_k", .shape = shape, .decompose = nullptr, .cost = cost::elementwise, .shard = {}};

}  // namespace ggml
