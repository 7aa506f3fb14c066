#include "cost.h"
#include "ggml/log.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 2, 2, 0);
  const Tensor& table = check::source(in, 0, "table");
  const Tensor& ids = check::integers(in, 1, "ids");
  check::require(in, table.type != DType::i32, strf("table %s is I32: integers are no rows", table.name.c_str()));
  check::expect_shape(in, table, "table", Shape(table.shape[0], table.shape[1]));
  return {{DType::f32, Shape(table.shape[0], ids.shape[0], ids.shape[1]), ids.rows}};
}

}  // namespace

const OpDef k_get_rows{.name = "get_rows", .shape = shape, .decompose = nullptr, .cost = cost::table, .shard = {}};

}  // namespace ggml
