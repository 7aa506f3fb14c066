#include "cuda/ops/single_row.h"

#include <algorithm>
#include <array>

#include "cuda/kernels/single_attention.h"
#include "cuda/kernels/staged_experts.h"
#include "cuda/kernels/staged_products.h"
#include "cuda/ops/plane_kinds.h"
#include "cuda/ops/projection.h"
#include "cuda/ops/rotation.h"

namespace ggml::cuda {
namespace {

/// Whether a slot's matrices can be copied ahead.
bool stages(const BindContext& c, const Slot& slot) {
  const Projection p(c, slot);
  return p.is_quantised() && can_stage(p.args({}, nullptr, 0, {}).w);
}

RowNorm row_norm(const BindContext& c, TensorId x, const OwnNorm& norm) {
  return {c.data<const float>(x), c.data<const float>(norm.weight), static_cast<int>(c.tensor(x).shape[0]), norm.eps};
}

class LinearWithResidual final : public BoundOp {
 public:
  LinearWithResidual(const BindContext& c, const Node& node, TensorId residual, Carver& carver)
      : x_(c.data<const float>(node.src[0])) {
    const Projection projection(c, node.slots[0]);
    const RowCount row = c.rows(node.src[0], projection.k());
    input_ = RoundedRows(c, node.src[0], projection.act(), projection.k(), row, carver);
    a_.products.add(plane_kind(projection.spec()),
                    projection.args(input_, c.data<float>(node.dst[0]), projection.n(), row));
    a_.residual = c.data<const float>(residual);
  }
  void launch(cudaStream_t stream) const override {
    input_.launch(x_, stream);
    launch_staged_products(a_, stream);
  }

 private:
  StagedProducts a_;
  RoundedRows input_;
  const float* x_;
};

class NormedQkv final : public BoundOp {
 public:
  NormedQkv(const BindContext& c, const Node& node, const OwnNorm& norm) {
    const auto& p = std::get<QkvParams>(node.params);
    const std::array<std::int64_t, 3> widths{std::int64_t{p.dk} * p.n_head, std::int64_t{p.dk} * p.n_head_kv,
                                             std::int64_t{p.dv} * p.n_head_kv};
    std::int64_t first = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const Projection whole(c, node.slots[p.fused ? 0 : i]);
      const Projection part = p.fused ? whole.part(first, widths[i]) : whole;
      first += widths[i];
      a_.act[i] = part.act();
      a_.products.add(plane_kind(part.spec()),
                      part.args({}, c.data<float>(node.dst[i]), widths[i], c.rows(node.src[0], part.k())));
    }
    a_.norm = row_norm(c, node.src[0], norm);
  }
  void launch(cudaStream_t stream) const override { launch_staged_products(a_, stream); }

 private:
  StagedProducts a_;
};

class SingleAttention final : public BoundOp {
 public:
  SingleAttention(const BindContext& c, const Node& node, const HeadsOfRow& own) {
    const auto& p = std::get<AttentionParams>(node.params);
    HeadsArgs& h = a_.heads;
    h.kv = planes_of(p.kv);
    h.in = {c.data<std::uint8_t>(node.src[1]), c.data<const AttnSpan>(node.src[2]),
            c.data<const std::int32_t>(node.src[3]), c.n_spans()};
    h.q = c.data<const float>(node.src[0]);
    h.k = c.data<const float>(node.src[4]);
    h.v = c.data<const float>(node.src[5]);
    h.rotate = rotation(c, own.heads.rope, std::span(node.src).subspan(6));
    h.n_head = p.n_head;
    h.tokens = {nullptr, 1, 1};
    if (!own.norms.empty()) {
      h.q_norm = head_norm(c, own.norms[0], own.heads.norm_eps);
      h.k_norm = head_norm(c, own.norms[1], own.heads.norm_eps);
    }
    AttentionArgs& a = a_.attend;
    a.kv = h.kv;
    a.in = h.in;
    a.sinks = p.has_sinks ? c.data<const float>(node.slots[0].weight) : nullptr;
    a.y = c.data<float>(node.dst[0]);
    a.n_head = p.n_head;
    a.scale = p.scale;
    a.softcap = p.softcap;
    a.max_alibi_bias = p.max_alibi_bias;
    a.causal = p.causal;
    a.window_kind = p.window_kind;
    a.window = p.window;
    a.tokens = h.tokens;
    RoundedOutput rounded[1];
    set_rounded_outputs(c, node.dst[0], p.kv.dv * p.n_head, a.tokens, rounded);
    a.rounded = rounded[0];
  }
  void launch(cudaStream_t stream) const override { launch_single_attention(a_, stream); }

 private:
  static NormArgs head_norm(const BindContext& c, const Slot& slot, float eps) {
    NormArgs a;
    a.weight = c.data<const float>(slot.weight);
    a.bias = c.data<const float>(slot.bias);
    a.heads = static_cast<int>(c.tensor(slot.weight).shape[1]);
    a.eps = eps;
    return a;
  }

  SingleAttentionArgs a_;
};

class NormedRouter final : public BoundOp {
 public:
  NormedRouter(const BindContext& c, const Node& node, const OwnNorm& norm) {
    const Projection router(c, node.slots[0]);
    a_.norm = row_norm(c, node.src[0], norm);
    a_.router = reinterpret_cast<const float*>(c.weight(node.slots[0].weight).codes);
    a_.epilogue = router.args({}, nullptr, 0, {}).epilogue;
    a_.n_expert = std::get<MoeRouteParams>(node.params).n_expert;
    a_.logits = c.data<float>(node.dst[0]);
  }
  void launch(cudaStream_t stream) const override { launch_router(a_, stream); }

 private:
  RouterArgs a_;
};

/// The arguments of both launches, without the norm and the choice.
struct ExpertArgs {
  StagedGateUpArgs gate_up;
  StagedDownSumArgs down;

  ExpertArgs(const BindContext& c, const Node& node) {
    const auto& p = std::get<MoeFfnParams>(node.params);
    const Projection first(c, node.slots[0]), second(c, node.slots[p.fused_gate_up ? 0 : 1]),
        last(c, node.slots.back());
    const std::int64_t width = last.k();
    const RowCount pairs{nullptr, p.n_used, p.n_used};
    ExpertIds ids;
    ids.n_used = p.n_used;
    ids.shared_input = true;
    ids.end = p.expert_end == 0 ? p.n_expert : p.expert_end;
    ids.begin = p.expert_begin;
    GateUpArgs& g = gate_up.base;
    g.gate = first.part(0, width).args({}, nullptr, 0, pairs);
    g.up = (p.fused_gate_up ? first.part(width, width) : second).args({}, nullptr, 0, pairs);
    g.gate.experts = g.up.experts = ids;
    g.activation = {p.act, p.limit};
    gate_up.act = first.act();
    DownSumArgs& d = down.base;
    d.down = last.args({}, nullptr, 0, pairs);
    ids.shared_input = false;
    d.down.experts = ids;
    d.act = last.act();
    d.tokens = {nullptr, 1, 1};
    if (!first.is_quantised() || !last.is_quantised()) return;
    g.kind = plane_kind(first.spec());
    d.kind = plane_kind(last.spec());
  }
};

class ChoosingExperts final : public BoundOp {
 public:
  ChoosingExperts(const BindContext& c, const Node& node, const OwnChoice& own, Carver& carver) : a_(c, node) {
    RouteArgs choice;
    choice.logits = c.data<float>(node.src[1]);
    choice.n_expert = own.params.n_expert;
    choice.n_used = own.params.n_used;
    choice.gating = own.params.gating;
    choice.normalise = own.params.normalise;
    choice.scale = own.params.scale == 0.0f ? 1.0f : own.params.scale;
    a_.gate_up.choice = a_.down.choice = choice;
    a_.gate_up.norm = row_norm(c, node.src[0], own.norm);
    DownSumArgs& down = a_.down.base;
    a_.gate_up.base.hidden = carver.array<float>(std::int64_t{down.down.w.k} * own.params.n_used);
    down.hidden = a_.gate_up.base.hidden;
    down.y = c.data<float>(node.dst[0]);
    a_.down.residual = c.data<const float>(own.residual);
  }
  void launch(cudaStream_t stream) const override {
    launch_staged_gate_up(a_.gate_up, stream);
    launch_staged_down_sum(a_.down, stream);
  }

 private:
  ExpertArgs a_;
};

bool is_f32_weight(const Graph& graph, TensorId id) {
  return graph.at(id).type == DType::f32 && graph.at(id).role == TensorRole::weight;
}

}  // namespace

bool norm_can_move(const Graph& graph, const Node& norm) {
  const auto& p = std::get<NormParams>(norm.params);
  const Shape& x = graph.at(norm.src[0]).shape;
  if (p.kind != NormKind::rms || !p.has_weight || x.rows() != 1) return false;
  for (const TensorId id : norm.src) {
    if (graph.at(id).role == TensorRole::view) return false;  // may lie anywhere: rows are read 16 bytes at a time
  }
  if (x[0] > kMostNormedValues || x[0] % kUnit != 0) return false;
  const Slot& slot = norm.slots[0];
  return is_f32_weight(graph, slot.weight) && graph.at(slot.weight).shape.rows() == 1 && !slot.bias.valid() &&
         !slot.scale.valid();
}

bool linear_adds_residual(const Graph& graph, const Node& linear) {
  return graph.at(linear.dst[0]).shape.rows() == 1 && stages(BindContext(graph, {}), linear.slots[0]);
}

bool qkv_takes_norm(const Graph& graph, const Node& qkv) {
  const auto& p = std::get<QkvParams>(qkv.params);
  if (p.clamp > 0 || p.has_qk_norm) return false;
  const std::array<std::int64_t, 3> widths{std::int64_t{p.dk} * p.n_head, std::int64_t{p.dk} * p.n_head_kv,
                                           std::int64_t{p.dv} * p.n_head_kv};
  const auto aligned = [](std::int64_t n) { return n % 8 == 0; };
  if (!std::all_of(widths.begin(), widths.end(), aligned)) return false;
  const BindContext c(graph, {});
  return std::all_of(qkv.slots.begin(), qkv.slots.end(), [&](const Slot& slot) { return stages(c, slot); });
}

bool attention_takes_heads(const Graph& graph, const Node& attention) {
  // Longer caches want more blocks than the clusters have: from about 2500 cells on the other kernel is faster.
  constexpr std::int64_t kMostCells = 4096;
  const auto& p = std::get<AttentionParams>(attention.params);
  if (graph.at(attention.src[3]).shape[0] > kMostCells / kKvBlockTokens + 1) return false;
  return graph.at(attention.dst[0]).shape.rows() == 1 && p.v_of_k == 0 && p.kv.k_type == DType::f16 &&
         p.kv.v_type == DType::f16 && single_attention_fits(planes_of(p.kv), p.n_head);
}

bool experts_take_norm(const Graph& graph, const Node& route, const Node& experts) {
  const auto& r = std::get<MoeRouteParams>(route.params);
  const auto& p = std::get<MoeFfnParams>(experts.params);
  if (!p.gated || !p.summed || p.weight_on_input || !choice_fits(r) || !is_f32_weight(graph, route.slots[0].weight))
    return false;
  const BindContext c(graph, {});
  const auto good = [&](const Slot& slot) { return stages(c, slot); };
  if (!std::all_of(experts.slots.begin(), experts.slots.end(), good)) return false;
  const Projection first(c, experts.slots[0]), second(c, experts.slots[p.fused_gate_up ? 0 : 1]);
  if (plane_kind(first.spec()) != plane_kind(second.spec()) || first.act() != second.act()) return false;
  const ExpertArgs args(c, experts);
  return staged_gate_up_fits(args.gate_up.base) && staged_down_sum_fits(args.down.base);
}

std::unique_ptr<BoundOp> bind_linear_with_residual(const BindContext& context, const Node& node, TensorId residual,
                                                   Carver& carver) {
  return std::make_unique<LinearWithResidual>(context, node, residual, carver);
}

std::unique_ptr<BoundOp> bind_normed_qkv(const BindContext& context, const Node& node, const OwnNorm& norm) {
  return std::make_unique<NormedQkv>(context, node, norm);
}

std::unique_ptr<BoundOp> bind_single_attention(const BindContext& context, const Node& node, const HeadsOfRow& heads) {
  return std::make_unique<SingleAttention>(context, node, heads);
}

std::unique_ptr<BoundOp> bind_normed_router(const BindContext& context, const Node& node, const OwnNorm& norm) {
  return std::make_unique<NormedRouter>(context, node, norm);
}

std::unique_ptr<BoundOp> bind_choosing_experts(const BindContext& context, const Node& node, const OwnChoice& choice,
                                               Carver& carver) {
  return std::make_unique<ChoosingExperts>(context, node, choice, carver);
}

}  // namespace ggml::cuda
