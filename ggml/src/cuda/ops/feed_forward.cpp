#include <array>

#include "cuda/kernels/expert_rows.h"
#include "cuda/kernels/route.h"
#include "cuda/kernels/selection.h"
#include "cuda/kernels/staged_experts.h"
#include "cuda/ops/plane_kinds.h"
#include "cuda/ops/projection.h"
#include "cuda/ops/registry.h"

namespace ggml::cuda {
namespace {

/// What ffn and moe_ffn share: how gate and up become the hidden values.
struct Hidden {
  bool gated = true;
  bool fused_gate_up = false;
  Activation act = Activation::silu;
  float limit = 0.0f;
  std::int64_t width = 0;  // of the hidden values
  float* gate = nullptr;   // [width] or, fused, [2 width]; not gated: the values of up
  float* up = nullptr;
  float* hidden = nullptr;

  Hidden(bool is_gated, bool fused, Activation activation, float bound, std::int64_t n, const RowCount& rows,
         Carver& carver)
      : gated(is_gated), fused_gate_up(fused), act(activation), limit(bound), width(n) {
    const std::int64_t cells = n * rows.capacity;
    gate = carver.array<float>(fused ? 2 * cells : cells);
    up = gated && !fused ? carver.array<float>(cells) : gate + (fused ? n : 0);
    hidden = carver.array<float>(cells);
  }
  void launch(const RowCount& rows, cudaStream_t stream) const {
    if (!gated) return launch_unary({UnaryKind::activation, act, 1.0f}, gate, hidden, width, rows, stream);
    launch_gated({act, limit}, args(rows), stream);
  }
  /// The same with the hidden values rounded for `down`.
  void launch(const RoundedRows& to, const RowCount& rows, cudaStream_t stream) const {
    if (gated && is_quantised(to.act())) {
      return launch_gated_rounded({act, limit}, args(rows), {to.act(), to.quantised()}, stream);
    }
    launch(rows, stream);
    to.launch(hidden, stream);
  }

 private:
  [[nodiscard]] GatedArgs args(const RowCount& rows) const {
    return {gate, up, fused_gate_up ? 2 * width : width, hidden, width, rows};
  }
};

/// Gate and up in one launch, with rounded hidden values, for few rows.
class GateUp {
 public:
  GateUp() = default;
  /// `gate` and `up` as they are multiplied: of a fused matrix its halves.
  GateUp(const Projection& gate, const Projection& up, const Hidden& hidden, const RoundedRows& input,
         const RowCount& rows)
      : on_(true) {
    a_.gate = gate.args(input, nullptr, 0, rows);
    a_.up = up.args(input, nullptr, 0, rows);
    a_.kind = plane_kind(gate.spec());
    a_.activation = {hidden.act, hidden.limit};
    a_.hidden = hidden.hidden;
  }
  /// Leaves the hidden values rounded as well.
  void set_rounded(const BindContext& c, const RoundedRows& to, std::int64_t width) {
    a_.rounded = {to.act(), to.quantised()};
    a_.arrived = c.counters(gate_up_counters(a_.gate.rows, width));
  }
  void set_experts(const ExpertIds& ids) {
    a_.gate.experts = a_.up.experts = ids;
    staged_ = staged_gate_up_fits(a_);
  }
  [[nodiscard]] explicit operator bool() const { return on_; }
  void launch(cudaStream_t stream) const {
    if (!staged_) return launch_gate_up(a_, stream);
    StagedGateUpArgs staged;
    staged.base = a_;
    launch_staged_gate_up(staged, stream);
  }

  [[nodiscard]] static bool fits(const Hidden& hidden, const Projection& gate, const Projection& up,
                                 const Projection& down) {
    return hidden.gated && gate.is_quantised() && up.is_quantised() && down.is_quantised() &&
           plane_kind(gate.spec()) == plane_kind(up.spec()) && gate.act() == up.act();
  }

 private:
  GateUpArgs a_;
  bool on_ = false;
  bool staged_ = false;  // experts whose weights can be copied ahead
};

const char* slots_decline(const Graph& graph, const Node& node) {
  for (const Slot& slot : node.slots) {
    if (const char* why = why_not_projection(graph, slot)) return why;
  }
  return nullptr;
}

class Ffn final : public BoundOp {
 public:
  Ffn(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<FfnParams>(node.params)),
        first_(c, node.slots[0]),
        second_(c, node.slots[p_.gated && !p_.fused_gate_up ? 1 : 0]),
        down_(c, node.slots.back()),
        x_(c.data<const float>(node.src[0])),
        y_(c.data<float>(node.dst[0])),
        rows_(c.rows(node.src[0], first_.k())),
        hidden_(p_.gated, p_.gated && p_.fused_gate_up, p_.act, p_.limit, down_.k(), rows_, carver),
        input_(c, node.src[0], first_.act(), first_.k(), rows_, carver),
        other_input_(c, node.src[0], second_.act() == first_.act() ? ActType::f32 : second_.act(), second_.k(), rows_,
                     carver),
        hidden_input_(down_.act(), down_.k(), rows_, carver) {
    second_.follow(first_, rows_.capacity);
    if (rows_.capacity != 1 || !GateUp::fits(hidden_, first_, second_, down_)) return;
    const std::int64_t n = hidden_.width;
    gate_up_ = GateUp(first_.part(0, n), hidden_.fused_gate_up ? first_.part(n, n) : second_, hidden_, input_, rows_);
    gate_up_.set_rounded(c, hidden_input_, n);
  }

  void launch(cudaStream_t stream) const override {
    input_.launch(x_, stream);
    if (gate_up_) {
      gate_up_.launch(stream);
      return down_.launch(hidden_input_, hidden_.hidden, y_, down_.n(), rows_, stream);
    }
    first_.launch(input_, x_, hidden_.gate, first_.n(), rows_, stream);
    if (p_.gated && !p_.fused_gate_up) {
      const bool same = second_.act() == first_.act();
      if (!same) other_input_.launch(x_, stream);
      second_.launch(same ? input_ : other_input_, x_, hidden_.up, second_.n(), rows_, stream);
    }
    hidden_.launch(hidden_input_, rows_, stream);
    down_.launch(hidden_input_, hidden_.hidden, y_, down_.n(), rows_, stream);
  }

 private:
  FfnParams p_;
  Projection first_, second_, down_;
  const float* x_;
  float* y_;
  RowCount rows_;
  Hidden hidden_;
  RoundedRows input_, other_input_, hidden_input_;
  GateUp gate_up_;
};

/// Sum over the chosen experts. Many pairs are sorted by expert and run as tiles; few run one by one.
class MoeFfn final : public BoundOp {
 public:
  MoeFfn(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<MoeFfnParams>(node.params)),
        first_(c, node.slots[0]),
        second_(c, node.slots[p_.gated && !p_.fused_gate_up ? 1 : 0]),
        down_(c, node.slots.back()),
        x_(c.data<const float>(node.src[0])),
        weights_(c.data<const float>(node.src[2])),
        y_(c.data<float>(node.dst[0])),
        tokens_(c.rows(node.src[0], first_.k())),
        pairs_(c.rows(node.src[1], 1)),
        hidden_(p_.gated, p_.gated && p_.fused_gate_up, p_.act, p_.limit, down_.k(), pairs_, carver),
        input_(c, node.src[0], first_.act(), first_.k(), tokens_, carver),
        other_input_(c, node.src[0], second_.act() == first_.act() ? ActType::f32 : second_.act(), second_.k(), tokens_,
                     carver),
        hidden_input_(down_.act(), down_.k(), pairs_, carver),
        each_(carver.array<float>(down_.n() * pairs_.capacity)) {
    ids_.ids = c.data<const std::int32_t>(node.src[1]);
    ids_.n_used = p_.n_used;
    ids_.begin = p_.expert_begin;
    ids_.end = p_.expert_end == 0 ? p_.n_expert : p_.expert_end;
    sort_.ids = ids_.ids;
    sort_.n_expert = p_.n_expert;
    sort_.begin = ids_.begin;
    sort_.end = ids_.end;
    sort_.pairs = pairs_;
    const bool few = pairs_.capacity <= kMaxVectorRows * p_.n_used;
    if (!few && all_have_tiles()) {
      plan_tiles(carver);
      second_.follow(first_, pairs_.capacity);
    }
    if (few && GateUp::fits(hidden_, first_, second_, down_) && down_sum_fits(down_.k(), p_.n_used)) plan_few();
  }

  void launch(cudaStream_t stream) const override {
    if (gate_up_) {
      input_.launch(x_, stream);
      gate_up_.launch(stream);
      return launch_down(stream);
    }
    const ExpertTiles* tiles = tiled_ ? &tiles_ : nullptr;
    if (tiles != nullptr) launch_sort_by_expert(sort_, stream);
    ExpertIds ids = ids_;
    ids.shared_input = true;
    input_.launch(x_, stream);
    first_.launch_experts(input_, x_, hidden_.gate, pairs_, ids, tiles, stream);
    if (p_.gated && !p_.fused_gate_up) {
      const bool same = second_.act() == first_.act();
      if (!same) other_input_.launch(x_, stream);
      second_.launch_experts(same ? input_ : other_input_, x_, hidden_.up, pairs_, ids, tiles, stream);
    }
    hidden_.launch(hidden_input_, pairs_, stream);
    ids.shared_input = false;
    down_.launch_experts(hidden_input_, hidden_.hidden, each_, pairs_, ids, tiles, stream);
    launch_weighted_sum(
        {each_, ids_.ids, weights_, y_, static_cast<int>(down_.n()), p_.n_used, ids_.begin, ids_.end, tokens_}, stream);
  }

 private:
  [[nodiscard]] bool all_have_tiles() const { return first_.has_tiles() && second_.has_tiles() && down_.has_tiles(); }

  void launch_down(cudaStream_t stream) const {
    if (!staged_down_sum_fits(down_sum_)) return launch_down_sum(down_sum_, stream);
    StagedDownSumArgs staged;
    staged.base = down_sum_;
    launch_staged_down_sum(staged, stream);
  }

  void plan_few() {
    const std::int64_t n = hidden_.width;
    ExpertIds ids = ids_;
    ids.shared_input = true;
    gate_up_ = GateUp(first_.part(0, n), hidden_.fused_gate_up ? first_.part(n, n) : second_, hidden_, input_, pairs_);
    gate_up_.set_experts(ids);
    down_sum_.down = down_.args({}, nullptr, 0, pairs_);
    down_sum_.down.experts = ids_;
    down_sum_.hidden = hidden_.hidden;
    down_sum_.act = down_.act();
    down_sum_.kind = plane_kind(down_.spec());
    down_sum_.weights = weights_;
    down_sum_.y = y_;
    down_sum_.tokens = tokens_;
  }

  void plan_tiles(Carver& carver) {
    tiled_ = true;
    sort_.tile_rows = tile_rows(pairs_.capacity / p_.n_expert);
    sort_.tile_capacity = tiles_for(pairs_.capacity, p_.n_expert, sort_.tile_rows);
    sort_.sorted = carver.array<std::int32_t>(pairs_.capacity);
    sort_.tile_expert = carver.array<std::int32_t>(sort_.tile_capacity);
    sort_.tile_first = carver.array<std::int32_t>(sort_.tile_capacity);
    sort_.tile_count = carver.array<std::int32_t>(sort_.tile_capacity);
    tiles_ = {sort_.sorted,     sort_.tile_expert,   sort_.tile_first,
              sort_.tile_count, sort_.tile_capacity, sort_.tile_rows};
  }

  MoeFfnParams p_;
  Projection first_, second_, down_;
  const float* x_;
  const float* weights_;
  float* y_;
  RowCount tokens_, pairs_;
  Hidden hidden_;
  RoundedRows input_, other_input_, hidden_input_;
  float* each_;  // [n, pairs] before the sum
  ExpertIds ids_;
  SortArgs sort_;
  ExpertTiles tiles_;
  bool tiled_ = false;
  GateUp gate_up_;
  DownSumArgs down_sum_;
};

const char* moe_ffn_declines(const Graph& graph, const Node& node) {
  const auto& p = std::get<MoeFfnParams>(node.params);
  if (p.weight_on_input) return "weights on the experts' input";
  if (!p.summed) return "experts that are not summed";
  return slots_decline(graph, node);
}

/// Scores, choice and weights of few tokens.
class MoeRoute final : public BoundOp {
 public:
  MoeRoute(const BindContext& c, const Node& node, Carver& carver) {
    const auto& p = std::get<MoeRouteParams>(node.params);
    const Projection router(c, node.slots[0]);
    a_.tokens = c.rows(node.src[0], router.k());
    a_.router = reinterpret_cast<const float*>(c.weight(node.slots[0].weight).codes);
    a_.epilogue = router.args({}, nullptr, 0, a_.tokens).epilogue;
    a_.selection_bias = p.has_selection_bias ? c.data<const float>(node.slots[1].weight) : nullptr;
    a_.x = c.data<const float>(node.src[0]);
    a_.k = router.k();
    a_.n_expert = p.n_expert;
    a_.n_used = p.n_used;
    a_.gating = p.gating;
    a_.normalise = p.normalise;
    a_.scale = p.scale == 0.0f ? 1.0f : p.scale;
    a_.logits = carver.array<float>(static_cast<std::int64_t>(p.n_expert) * a_.tokens.capacity);
    a_.arrived = c.counters(a_.tokens.capacity);
    a_.ids = c.data<std::int32_t>(node.dst[0]);
    a_.weights = c.data<float>(node.dst[1]);
  }
  void launch(cudaStream_t stream) const override { launch_route(a_, stream); }

 private:
  RouteArgs a_;
};

const char* moe_route_declines(const Graph& graph, const Node& node) {
  const auto& p = std::get<MoeRouteParams>(node.params);
  const Shape& x = graph.at(node.src[0]).shape;
  if (graph.at(node.slots[0].weight).type != DType::f32 || graph.at(node.slots[0].weight).role != TensorRole::weight)
    return "a router that is not F32";
  if (x[1] > kMaxVectorRows) return "many tokens";
  if (p.n_groups > 1 || p.keep_ratio > 0) return "groups of experts or a threshold";
  if (!route_fits(static_cast<int>(x[0]), p.n_expert, p.n_used)) return "too many experts";
  if (p.has_selection_bias && graph.at(node.slots[1].weight).type != DType::f32) return "a bias that is not F32";
  return why_not_projection(graph, node.slots[0]);
}

}  // namespace

const OpImpl kMoeRoute{"moe_route", moe_route_declines, bind_as<MoeRoute>};
const OpImpl kFfn{"ffn", slots_decline, bind_as<Ffn>};
const OpImpl kMoeFfn{"moe_ffn", moe_ffn_declines, bind_as<MoeFfn>};

}  // namespace ggml::cuda
