#include "attention_check.h"
#include "cost.h"
#include "lowering.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<AttentionParams>();
  check::expect_counts(in, 6, 6, p.has_sinks ? 1 : 0);
  attention_check::params(in, p);
  attention_check::keys_and_values(in, 1, p.kv);
  check::expect_extent(in, check::values(in, 1, "k"), "k", 2, check::values(in, 0, "q").shape[2]);
  attention_check::cache_inputs(in, 3);
  return attention_check::result(in, p);
}

void decompose(Lowering& to, const Node& node) {
  const auto& p = std::get<AttentionParams>(node.params);
  const std::vector<TensorId>& s = node.src;
  to.emit_effect({Op::kv_append, KvAppendParams{p.kv}, {s[1], s[2], s[3], s[4], s[5]}, {}});
  to.emit_into(node.dst[0], {Op::attn_dense, p, {s[0], s[3], s[4], s[5]}, node.slots});
}

}  // namespace

const OpDef k_attention{.name = "attention",
                        .shape = shape,
                        .decompose = decompose,
                        .cost = cost::attention,
                        .shard = {PlacementAxis::heads, ShardResult::slice}};

}  // namespace ggml
