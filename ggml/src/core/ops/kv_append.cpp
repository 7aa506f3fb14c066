#include "attention_check.h"
#include "cost.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 5, 5, 0);
  attention_check::keys_and_values(in, 0, in.get<KvAppendParams>().kv);
  attention_check::cache_inputs(in, 2);
  return {};
}

}  // namespace

const OpDef k_kv_append{.name = "kv_append",
                        .shape = shape,
                        .decompose = nullptr,
                        .cost = cost::attention,
                        .shard = {PlacementAxis::heads, ShardResult::slice}};

}  // namespace ggml
