#include <array>

#include "cuda/kernels/selection.h"
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
    launch_gated({act, limit}, {gate, up, fused_gate_up ? 2 * width : width, hidden, width, rows}, stream);
  }
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
        input_(first_.act(), first_.k(), rows_, carver),
        other_input_(second_.act() == first_.act() ? ActType::f32 : second_.act(), second_.k(), rows_, carver),
        hidden_input_(down_.act(), down_.k(), rows_, carver) {}

  void launch(cudaStream_t stream) const override {
    input_.launch(x_, stream);
    first_.launch(input_, x_, hidden_.gate, first_.n(), rows_, stream);
    if (p_.gated && !p_.fused_gate_up) {
      const bool same = second_.act() == first_.act();
      if (!same) other_input_.launch(x_, stream);
      second_.launch(same ? input_ : other_input_, x_, hidden_.up, second_.n(), rows_, stream);
    }
    hidden_.launch(rows_, stream);
    hidden_input_.launch(hidden_.hidden, stream);
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
        input_(first_.act(), first_.k(), tokens_, carver),
        other_input_(second_.act() == first_.act() ? ActType::f32 : second_.act(), second_.k(), tokens_, carver),
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
    if (pairs_.capacity > kMaxVectorRows * p_.n_used && all_have_tiles()) plan_tiles(carver);
  }

  void launch(cudaStream_t stream) const override {
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
    hidden_.launch(pairs_, stream);
    hidden_input_.launch(hidden_.hidden, stream);
    ids.shared_input = false;
    down_.launch_experts(hidden_input_, hidden_.hidden, each_, pairs_, ids, tiles, stream);
    launch_weighted_sum(
        {each_, ids_.ids, weights_, y_, static_cast<int>(down_.n()), p_.n_used, ids_.begin, ids_.end, tokens_}, stream);
  }

 private:
  [[nodiscard]] bool all_have_tiles() const { return first_.has_tiles() && second_.has_tiles() && down_.has_tiles(); }

  void plan_tiles(Carver& carver) {
    tiled_ = true;
    sort_.tile_capacity = tiles_for(pairs_.capacity, p_.n_expert);
    sort_.sorted = carver.array<std::int32_t>(pairs_.capacity);
    sort_.tile_expert = carver.array<std::int32_t>(sort_.tile_capacity);
    sort_.tile_first = carver.array<std::int32_t>(sort_.tile_capacity);
    sort_.tile_count = carver.array<std::int32_t>(sort_.tile_capacity);
    tiles_ = {sort_.sorted, sort_.tile_expert, sort_.tile_first, sort_.tile_count, sort_.tile_capacity};
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
};

const char* moe_ffn_declines(const Graph& graph, const Node& node) {
  const auto& p = std::get<MoeFfnParams>(node.params);
  if (p.weight_on_input) return "weights on the experts' input";
  if (!p.summed) return "experts that are not summed";
  return slots_decline(graph, node);
}

}  // namespace

const OpImpl kFfn{"ffn", slots_decline, bind_as<Ffn>};
const OpImpl kMoeFfn{"moe_ffn", moe_ffn_declines, bind_as<MoeFfn>};

}  // namespace ggml::cuda
