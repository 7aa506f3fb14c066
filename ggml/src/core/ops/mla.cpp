#include "attention_check.h"
#include "cost.h"
#include "ggml/log.h"
#include "lowering.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

/// A matrix of `rows` rows for each head, all heads in one tensor of 2 or 3 axes.
void check_heads_matrix(const OpInputs& in, std::size_t slot, std::int64_t k, std::int64_t rows) {
  const Tensor& w = in.graph.at(in.slots[slot].weight);
  check::expect_extent(in, w, w.name.c_str(), 0, k);
  check::require(in, w.shape.rows() == rows,
                 strf("%s is %s, expected %lld rows in all", w.name.c_str(), w.shape.text().c_str(),
                      static_cast<long long>(rows)));
}

struct UpRows {
  int n_head, nope, dv, k_up_rows, v_up_rows, v_up_begin;
};

void check_up(const OpInputs& in, std::size_t slot, std::int64_t kv_rank, const UpRows& up) {
  check::require(in,
                 up.n_head > 0 && up.nope > 0 && up.dv > 0 && up.nope <= up.k_up_rows && up.v_up_begin >= 0 &&
                     up.v_up_begin + up.dv <= up.v_up_rows,
                 strf("%d heads of %d and %d elements from %d and %d rows", up.n_head, up.nope, up.dv, up.k_up_rows,
                      up.v_up_rows));
  check_heads_matrix(in, slot, kv_rank, std::int64_t{up.k_up_rows} * up.n_head);
  check_heads_matrix(in, slot + 1, kv_rank, std::int64_t{up.v_up_rows} * up.n_head);
}

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<MlaParams>();
  check::expect_counts(in, 6, 6, 3);
  const Tensor& q = check::values(in, 0, "q");
  const std::int64_t tokens = q.shape[2];
  check::expect_shape(in, q, "q", Shape(p.nope + p.n_rot, p.n_head, tokens));
  check::expect_shape(in, check::values(in, 1, "latent"), "latent", Shape(p.kv_rank, tokens));
  check::expect_shape(in, check::values(in, 2, "k_rot"), "k_rot", Shape(p.n_rot, 1, tokens));
  attention_check::cache_inputs(in, 3);
  check_heads_matrix(in, 0, p.nope, std::int64_t{p.kv_rank} * p.n_head);
  check_up(in, 1, p.kv_rank, {p.n_head, p.nope, p.dv, p.k_up_rows, p.v_up_rows, p.v_up_begin});
  const KvLayout& kv = p.kv;
  check::require(
      in, kv.n_head_kv == 1 && kv.dk == p.kv_rank + p.n_rot && (kv.dv == 0 || kv.dv == p.kv_rank) && kv.supported(),
      strf("a cache of %d heads of %d and %d elements (%s, %s) for a latent of %d and %d rotated", kv.n_head_kv, kv.dk,
           kv.dv, std::string(type_info(kv.k_type).name).c_str(), std::string(type_info(kv.v_type).name).c_str(),
           p.kv_rank, p.n_rot));
  return {{DType::f32, Shape(static_cast<std::int64_t>(p.dv) * p.n_head, tokens), q.rows}};
}

/// The product of each head's matrix with x, rounded to what the weight's type wants. A tapped slot keeps its tap.
Lowering::Step heads_product(Lowering& to, const Slot& slot, TensorId x, const MulMatHeadsParams& p) {
  Lowering::Step step{Op::mul_mat_heads, p, {slot.weight, to.rounded(x, slot.weight)}, {}};
  if (slot.tapped) {
    step.src.push_back(x);
    step.slots.push_back({slot.weight, {}, {}, true});
  }
  return step;
}

void decompose(Lowering& to, const Node& node) {
  const auto& p = std::get<MlaParams>(node.params);
  const std::int64_t tokens = to.at(node.src[0]).shape[2];
  const TensorId q_nope = to.emit({Op::slice, SliceParams{0, p.nope}, {node.src[0]}, {}}, "q_nope");
  const TensorId q_rot = to.emit({Op::slice, SliceParams{p.nope, p.n_rot}, {node.src[0]}, {}}, "q_rot");
  const MulMatHeadsParams absorb{p.n_head, p.kv_rank, 0, p.kv_rank};
  const TensorId q_latent = to.emit(heads_product(to, node.slots[0], q_nope, absorb), "q_latent");
  const TensorId q = to.emit({Op::concat, ConcatParams{}, {q_latent, q_rot}, {}}, "q");
  const TensorId latent = to.view(node.src[1], Shape(p.kv_rank, 1, tokens));
  const TensorId k = to.emit({Op::concat, ConcatParams{}, {latent, node.src[2]}, {}}, "k");
  const TensorId v = p.kv.dv > 0 ? latent : k;
  to.emit_effect({Op::kv_append, KvAppendParams{p.kv}, {k, v, node.src[3], node.src[4], node.src[5]}, {}});
  AttentionParams attention;
  attention.kv = p.kv;
  attention.n_head = p.n_head;
  attention.scale = p.scale;
  attention.v_of_k = p.kv.dv > 0 ? 0 : p.kv_rank;
  const TensorId o = to.emit({Op::attn_dense, attention, {q, node.src[3], node.src[4], node.src[5]}, {}}, "latent_out");
  const TensorId heads = to.view(o, Shape(p.kv_rank, p.n_head, tokens));
  to.emit_into(node.dst[0], heads_product(to, node.slots[2], heads, {p.n_head, p.v_up_rows, p.v_up_begin, p.dv}));
}

Cost mla_cost(const Graph& graph, const Node& node, int tokens) {
  const auto& p = std::get<MlaParams>(node.params);
  Cost cost = cost::elementwise(graph, node, tokens);
  cost.weight_bytes = 0;
  const bool expanded = p.expand_from > 0 && tokens >= p.expand_from;
  // The form that is not taken reads nothing.
  for (const std::size_t slot : {expanded ? std::size_t{1} : std::size_t{0}, std::size_t{2}}) {
    const Tensor& w = graph.at(node.slots[slot].weight);
    cost.weight_bytes += static_cast<double>(tensor_bytes(w.type, w.shape));
  }
  cost.kv_bytes = static_cast<double>(p.kv.block_bytes()) / kKvBlockTokens * tokens;
  cost.flops = 2.0 * p.n_head * p.kv_rank * (p.nope + p.dv) * tokens;
  return cost;
}

std::vector<TensorDesc> expand_shape(const OpInputs& in) {
  const auto& p = in.get<MlaExpandParams>();
  check::expect_counts(in, 2, 2, 2);
  const Tensor& latent = check::values(in, 0, "latent");
  const std::int64_t tokens = latent.shape[1];
  check::expect_shape(in, check::values(in, 1, "k_rot"), "k_rot", Shape(p.n_rot, 1, tokens));
  check_up(in, 0, latent.shape[0], {p.n_head, p.nope, p.dv, p.k_up_rows, p.v_up_rows, p.v_up_begin});
  return {{DType::f32, Shape(p.nope + p.n_rot, p.n_head, tokens), latent.rows},
          {DType::f32, Shape(p.dv, p.n_head, tokens), latent.rows}};
}

void expand_decompose(Lowering& to, const Node& node) {
  const auto& p = std::get<MlaExpandParams>(node.params);
  const Shape flat = to.at(node.src[0]).shape;
  const TensorId latent = to.view(node.src[0], Shape(flat[0], 1, flat[1]));
  const TensorId k = to.emit(heads_product(to, node.slots[0], latent, {p.n_head, p.k_up_rows, 0, p.nope}), "k_nope");
  to.emit_into(node.dst[0], {Op::concat, ConcatParams{}, {k, node.src[1]}, {}});
  Slot value_up = node.slots[1];
  if (value_up.weight == node.slots[0].weight) value_up.tapped = false;  // one weight and one input, seen once
  to.emit_into(node.dst[1], heads_product(to, value_up, latent, {p.n_head, p.v_up_rows, p.v_up_begin, p.dv}));
}

}  // namespace

const OpDef k_mla{.name = "mla",
                  .shape = shape,
                  .decompose = decompose,
                  .cost = mla_cost,
                  .shard = {PlacementAxis::heads, ShardResult::slice}};
const OpDef k_mla_expand{.name = "mla_expand",
                         .shape = expand_shape,
                         .decompose = expand_decompose,
                         .cost = cost::matmul,
                         .shard = {PlacementAxis::heads, ShardResult::slice}};

}  // namespace ggml
