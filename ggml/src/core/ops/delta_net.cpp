#include <cmath>

#include "cost.h"
#include "ggml/log.h"
#include "lowering.h"
#include "shape_check.h"
#include "state_check.h"

namespace ggml {

namespace check = shape_check;

namespace state_check {

void inputs(const OpInputs& in, std::size_t i, const StateLayout& state, std::int64_t floats) {
  const Tensor& pool = check::integers(in, i, "pool");
  const Tensor& spans = check::integers(in, i + 1, "spans");
  check::expect_extent(in, spans, "spans", 0, static_cast<std::int64_t>(sizeof(AttnSpan) / sizeof(std::int32_t)));
  check::require(
      in,
      state.offset >= 0 && state.offset + floats <= state.slot_floats && pool.shape.elements() % state.slot_floats == 0,
      strf("a state of %lld floats from %lld on in slots of %lld", static_cast<long long>(floats),
           static_cast<long long>(state.offset), static_cast<long long>(state.slot_floats)));
}

}  // namespace state_check

namespace {

void check_heads(const OpInputs& in, const DeltaNetParams& p) {
  check::require(in, p.head_dim > 0 && p.n_head_k > 0 && p.n_head_v > 0 && p.n_head_v % p.n_head_k == 0,
                 strf("%d value heads over %d key heads of %d elements", p.n_head_v, p.n_head_k, p.head_dim));
}

std::int64_t state_floats(const DeltaNetParams& p) {
  return static_cast<std::int64_t>(p.head_dim) * p.head_dim * p.n_head_v;
}

std::vector<TensorDesc> result(const DeltaNetParams& p, const Tensor& like, std::int64_t tokens) {
  return {{DType::f32, Shape(static_cast<std::int64_t>(p.head_dim) * p.n_head_v, tokens), like.rows}};
}

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<DeltaNetParams>();
  check::expect_counts(in, 5, 5, 1);
  check_heads(in, p);
  const Tensor& qkv = check::values(in, 0, "qkv");
  const std::int64_t tokens = qkv.shape[1];
  const std::int64_t width = static_cast<std::int64_t>(p.head_dim) * (2 * p.n_head_k + p.n_head_v);
  check::expect_shape(in, qkv, "qkv", Shape(width, tokens));
  check::expect_shape(in, check::values(in, 1, "beta"), "beta", Shape(p.n_head_v, tokens));
  check::expect_shape(in, check::values(in, 2, "alpha"), "alpha", Shape(p.n_head_v, tokens));
  const Shape per_head(p.n_head_v);
  check::vector(in, 0, "decay", std::span(&per_head, 1));
  check::require(in, in.slots[0].bias.valid(), "the decay has no bias dt");
  state_check::inputs(in, 3, p.state, state_floats(p));
  return result(p, qkv, tokens);
}

void decompose(Lowering& to, const Node& node) {
  const auto& p = std::get<DeltaNetParams>(node.params);
  const std::int64_t tokens = to.at(node.src[0]).shape[1];
  const int keys = p.head_dim * p.n_head_k;
  const auto part = [&](int begin, int heads, const char* what) {
    const TensorId flat = to.emit({Op::slice, SliceParams{begin, p.head_dim * heads}, {node.src[0]}, {}}, what);
    return to.view(flat, Shape(p.head_dim, heads, tokens));
  };
  const TensorId q =
      Chain(to, "q", {Op::normalise, NormaliseParams{NormKind::l2, p.eps}, {part(0, p.n_head_k, "q_raw")}, {}})
          .then(Op::unary,
                UnaryParams{UnaryKind::scale, Activation::none, 1.0f / std::sqrt(static_cast<float>(p.head_dim))})
          .finish();
  const TensorId k =
      to.emit({Op::normalise, NormaliseParams{NormKind::l2, p.eps}, {part(keys, p.n_head_k, "k_raw")}, {}}, "k");
  const TensorId v = part(2 * keys, p.n_head_v, "v");
  const TensorId beta =
      to.emit({Op::unary, UnaryParams{UnaryKind::activation, Activation::sigmoid, 1.0f}, {node.src[1]}, {}}, "beta");
  const TensorId g = Chain(to, "g", {Op::add, BinaryParams{}, {node.src[2], node.slots[0].bias}, {}})
                         .then(Op::unary, UnaryParams{UnaryKind::activation, Activation::softplus, 1.0f})
                         .then(Op::mul, BinaryParams{}, {node.slots[0].weight})
                         .finish();
  to.emit_into(node.dst[0], {Op::delta_rule, p, {q, k, v, g, beta, node.src[3], node.src[4]}, {}});
}

std::vector<TensorDesc> rule_shape(const OpInputs& in) {
  const auto& p = in.get<DeltaNetParams>();
  check::expect_counts(in, 7, 7, 0);
  check_heads(in, p);
  const Tensor& q = check::values(in, 0, "q");
  const std::int64_t tokens = q.shape[2];
  check::expect_shape(in, q, "q", Shape(p.head_dim, p.n_head_k, tokens));
  check::expect_shape(in, check::values(in, 1, "k"), "k", q.shape);
  check::expect_shape(in, check::values(in, 2, "v"), "v", Shape(p.head_dim, p.n_head_v, tokens));
  check::expect_shape(in, check::values(in, 3, "g"), "g", Shape(p.n_head_v, tokens));
  check::expect_shape(in, check::values(in, 4, "beta"), "beta", Shape(p.n_head_v, tokens));
  state_check::inputs(in, 5, p.state, state_floats(p));
  return result(p, q, tokens);
}

Cost rule_cost(const Graph& graph, const Node& node, int tokens) {
  Cost cost = cost::elementwise(graph, node, tokens);
  const auto elements = static_cast<double>(state_floats(std::get<DeltaNetParams>(node.params)));
  cost.flops = 7.0 * elements * tokens;            // decay, two products, one update
  cost.kv_bytes = 2.0 * elements * sizeof(float);  // the state, read and written
  return cost;
}

}  // namespace

const OpDef k_delta_net{.name = "delta_net",
                        .shape = shape,
                        .decompose = decompose,
                        .cost = rule_cost,
                        .shard = {PlacementAxis::heads, ShardResult::slice}};
const OpDef k_delta_rule{.name = "delta_rule",
                         .shape = rule_shape,
                         .decompose = nullptr,
                         .cost = rule_cost,
                         .shard = {PlacementAxis::heads, ShardResult::slice}};

}  // namespace ggml
