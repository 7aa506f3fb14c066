#include "attention_check.h"
#include "cost.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<AttentionParams>();
  check::expect_counts(in, 4, 4, p.has_sinks ? 1 : 0);
  attention_check::params(in, p);
  attention_check::cache_inputs(in, 1);
  return attention_check::result(in, p);
}

}  // namespace

const OpDef k_attn_dense{.name = "attn_dense",
                         .shape = shape,
                         .decompose = nullptr,
                         .cost = cost::attention,
                         .shard = {PlacementAxis::heads, ShardResult::slice}};

}  // namespace ggml
