#include <algorithm>

#include "cpu/ops/projection.h"
#include "cpu/ops/registry.h"

namespace ggml::cpu {
namespace {

/// Rows [0, rows) of a tapped slot's input, for a projection whose input is a tensor of the graph.
void show_rows(Observer& observer, const Weight& weight, const float* x, std::int64_t k, std::int64_t rows) {
  observer.on_slot(weight, {x, static_cast<std::size_t>(k * rows)}, {});
}

/// y = scale * (W x) + bias.
class Linear final : public BoundOp {
 public:
  Linear(const BindContext& c, const Node& node, Carver& carver)
      : weight_(c.tensor(node.slots[0].weight).weight), x_(c.data<const float>(node.src[0])) {
    const Projection p = bind_projection(c, node.slots[0]);
    k_ = p.k;
    rows_ = c.live_rows(node.src[0], k_);
    const ProjectionGroup::Member member{p, c.data<float>(node.dst[0]), p.n};
    group_ = ProjectionGroup(c, std::span(&member, 1), rows_.capacity, carver);
  }
  void run(Team& team, const StepCounts& counts) const noexcept override { group_.run(team, x_, k_, rows_.of(counts)); }
  void report_taps(Observer& observer, const StepCounts& counts) const override {
    show_rows(observer, *weight_, x_, k_, rows_.of(counts));
  }

 private:
  const Weight* weight_;
  const float* x_;
  std::int64_t k_ = 0;
  LiveRows rows_;
  ProjectionGroup group_;
};

/// Query, key and value of a layer: one rounding of the input, one loop over the rows of all matrices; then clamp and
/// norms.
class Qkv final : public BoundOp {
 public:
  Qkv(const BindContext& c, const Node& node, Carver& carver)
      : kernels_(c.kernels()),
        params_(std::get<QkvParams>(node.params)),
        x_(c.data<const float>(node.src[0])),
        n_matrices_(params_.fused ? 1 : 3) {
    k_ = c.tensor(node.src[0]).shape[0];
    rows_ = c.live_rows(node.src[0], k_);
    const std::array<std::int64_t, 3> widths{std::int64_t{params_.dk} * params_.n_head,
                                             std::int64_t{params_.dk} * params_.n_head_kv,
                                             std::int64_t{params_.dv} * params_.n_head_kv};
    std::array<ProjectionGroup::Member, 3> members;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const Projection p = bind_projection(c, node.slots[params_.fused ? 0 : i]);
      dst_[i] = c.data<float>(node.dst[i]);
      members[i] = {params_.fused ? p.part(first, widths[i]) : p, dst_[i], widths[i]};
      first += widths[i];
    }
    widths_ = widths;
    group_ = ProjectionGroup(c, members, rows_.capacity, carver);
    if (params_.has_qk_norm) {
      for (std::size_t i = 0; i < 2; ++i)
        norms_[i] = bind_norm(c, node.slots[static_cast<std::size_t>(n_matrices_) + i]);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(n_matrices_); ++i) {
      if (node.slots[i].tapped) tapped_.push_back(c.tensor(node.slots[i].weight).weight);
    }
  }

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t rows = rows_.of(counts);
    group_.run(team, x_, k_, rows);
    if (!params_.has_qk_norm && params_.clamp <= 0.0f) return;
    team.barrier();
    // One item per (row, head), or per whole row where the norm runs over all heads.
    const std::int64_t per_row = params_.norm_full_row ? 3 : params_.n_head + 2 * params_.n_head_kv;
    team.for_chunks(rows * per_row, chunk_for(rows * per_row, team.size(), 1),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i) finish(i / per_row, i % per_row);
                    });
  }

  void report_taps(Observer& observer, const StepCounts& counts) const override {
    for (const Weight* weight : tapped_) show_rows(observer, *weight, x_, k_, rows_.of(counts));
  }

 private:
  struct Piece {
    int which;  // 0 q, 1 k, 2 v
    std::int64_t offset, n;
  };
  [[nodiscard]] Piece piece(std::int64_t item) const noexcept {
    if (params_.norm_full_row) {
      const int which = static_cast<int>(item);
      return {which, 0, widths_[static_cast<std::size_t>(which)]};
    }
    if (item < params_.n_head) return {0, item * params_.dk, params_.dk};
    item -= params_.n_head;
    if (item < params_.n_head_kv) return {1, item * params_.dk, params_.dk};
    return {2, (item - params_.n_head_kv) * params_.dv, params_.dv};
  }

  void finish(std::int64_t row, std::int64_t item) const noexcept {
    const Piece p = piece(item);
    float* y = dst_[static_cast<std::size_t>(p.which)] + row * widths_[static_cast<std::size_t>(p.which)] + p.offset;
    if (params_.clamp > 0.0f) {
      for (std::int64_t i = 0; i < p.n; ++i) y[i] = std::min(std::max(y[i], -params_.clamp), params_.clamp);
    }
    if (!params_.has_qk_norm || p.which == 2) return;
    const HeadNorm& norm = norms_[static_cast<std::size_t>(p.which)];
    const std::int64_t first = norm.per_head ? p.offset : 0;
    kernels_.vec.rms_norm(y, norm.weight + first, params_.norm_eps, p.n, y);
    if (norm.bias != nullptr) kernels_.vec.add(y, norm.bias + first, p.n, y);
  }

  /// Weights of a norm over heads: one vector for all of them, or one per head.
  struct HeadNorm {
    const float* weight = nullptr;
    const float* bias = nullptr;
    bool per_head = false;
  };
  static HeadNorm bind_norm(const BindContext& c, const Slot& slot) {
    return {c.data<const float>(slot.weight), c.data<const float>(slot.bias), c.tensor(slot.weight).shape[1] > 1};
  }

  const KernelTable& kernels_;
  const QkvParams params_;
  const float* x_;
  int n_matrices_;
  std::int64_t k_ = 0;
  LiveRows rows_;
  std::array<std::int64_t, 3> widths_{};
  std::array<float*, 3> dst_{};
  std::array<HeadNorm, 2> norms_{};
  std::vector<const Weight*> tapped_;
  ProjectionGroup group_;
};

const char* linear_declines(const Graph& graph, const KernelTable& kernels, const Node& node) {
  return why_not_projection(graph, kernels, node.slots[0]);
}

const char* qkv_declines(const Graph& graph, const KernelTable& kernels, const Node& node) {
  const auto& params = std::get<QkvParams>(node.params);
  const std::size_t n_matrices = params.fused ? 1 : 3;
  for (std::size_t i = 0; i < n_matrices; ++i) {
    if (const char* why = why_not_projection(graph, kernels, node.slots[i])) return why;
  }
  for (std::size_t i = n_matrices; i < node.slots.size(); ++i) {
    const Slot& norm = node.slots[i];
    if (graph.at(norm.weight).type != DType::f32) return "a norm weight that is not F32";
    if (norm.scale.valid()) return "a norm of q or k with a scale";
  }
  return nullptr;
}

}  // namespace

const OpImpl kLinear{"linear", linear_declines, bind_as<Linear>};
const OpImpl kQkv{"qkv", qkv_declines, bind_as<Qkv>};

}  // namespace ggml::cpu
