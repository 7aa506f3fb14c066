#include "ggml/sample_row.h"

#include "cost.h"
#include "lowering.h"
#include "sample_check.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

constexpr std::int64_t kRowWords = sizeof(SampleRow) / sizeof(std::int32_t);
constexpr std::int64_t kAdjustWords = sizeof(SampleAdjust) / sizeof(std::int32_t);
constexpr std::int64_t kResultWords = sizeof(SampleResult) / sizeof(std::int32_t);

void decompose(Lowering& to, const Node& node) {
  to.emit_into(node.dst[0], {Op::pick, SampleParams{}, node.src, {}});
}

}  // namespace

std::vector<TensorDesc> sample_shape(const OpInputs& in) {
  check::expect_counts(in, 4, 4, 0);
  const Tensor& logits = check::values(in, 0, "logits");
  const Tensor& rows = check::integers(in, 1, "rows");
  check::expect_extent(in, rows, "rows", 0, kRowWords);
  check::expect_extent(in, check::integers(in, 2, "adjust"), "adjust", 0, kAdjustWords);
  check::expect_extent(in, check::integers(in, 3, "masks"), "masks", 0, (logits.shape[0] + 31) / 32);
  return {{DType::i32, Shape(kResultWords, rows.shape[1]), rows.rows}};
}

const OpDef k_sample{
    .name = "sample", .shape = sample_shape, .decompose = decompose, .cost = cost::elementwise, .shard = {}};

}  // namespace ggml
