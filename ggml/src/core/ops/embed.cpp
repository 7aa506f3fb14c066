#include "cost.h"
#include "lowering.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

std::vector<TensorDesc> shape(const OpInputs& in) {
  check::expect_counts(in, 1, 1, 1);
  const Tensor& ids = check::integers(in, 0, "ids");
  (void)check::matrix(in, 0, "table", {.is_table = true});
  const std::int64_t n_embd = in.graph.at(in.slots[0].weight).shape[0];
  return {{DType::f32, Shape(n_embd, ids.shape[0]), ids.rows}};
}

void decompose(Lowering& to, const Node& node) {
  const float scale = std::get<EmbedParams>(node.params).scale;
  Chain chain(to, "rows", {Op::get_rows, GetRowsParams{}, {node.slots[0].weight, node.src[0]}, {}});
  for (const SlotAdapter& adapter : node.slots[0].adapters) {
    const TensorId rows = to.emit({Op::get_rows, GetRowsParams{}, {adapter.a, node.src[0]}, {}}, "adapter_a");
    chain.then(Op::add, BinaryParams{}, {widen(to, adapter, rows, adapter.scales)});
  }
  if (scale != 1.0f) chain.then(Op::unary, UnaryParams{UnaryKind::scale, Activation::none, scale});
  chain.finish_into(node.dst[0]);
}

}  // namespace

const OpDef k_embed{
    .name = "embed", .shape = shape, .decompose = decompose, .cost = cost::table, .shard = {}, .takes_adapters = true};

}  // namespace ggml
