#include <algorithm>
#include <cstring>

#include "cpu/ops/expert_groups.h"
#include "cpu/ops/projection.h"
#include "cpu/ops/registry.h"

// mul_mat_id with the kernels of the coarse ops, for graphs in which the projections of experts are single nodes (their
// weights lie on several devices). The rows of x were rounded to the form that the kernels read, so that rounding them
// again changes nothing.

namespace ggml::cpu {
namespace {

class ExpertProduct final : public BoundOp {
 public:
  ExpertProduct(const BindContext& c, const Node& node, Carver& carver)
      : kernels_(c.kernels()),
        w_(bind_projection(c, Slot{node.src[0], {}, {}, false})),
        x_(c.data<const float>(node.src[1])),
        ids_(c.data<const std::int32_t>(node.src[2])),
        dst_(c.data<float>(node.dst[0])),
        n_used_(static_cast<int>(c.tensor(node.src[2]).shape[0])),
        n_expert_(static_cast<int>(c.tensor(node.src[0]).shape[2])),
        shared_row_(c.tensor(node.src[1]).shape[1] == 1),
        tokens_(c.live_rows(node.src[2], n_used_)),
        x_rows_(c.live_rows(node.src[1], w_.k)) {
    const auto& p = std::get<MulMatIdParams>(node.params);
    begin_ = p.expert_begin;
    end_ = p.expert_end == 0 ? n_expert_ : p.expert_end;
    max_pairs_ = tokens_.capacity * n_used_;
    input_ = RoundedInput(c, {&w_, 1}, w_.k, x_rows_.capacity, carver);
    scratch_ = PerWorker<std::byte>(carver, c.n_workers(), static_cast<std::int64_t>(matmul_scratch_bytes(max_pairs_)));
    groups_ = PerWorker<std::int32_t>(carver, c.n_workers(), ExpertGroups::words(max_pairs_, n_expert_));
    pairs_ = PerWorker<std::int32_t>(carver, c.n_workers(), max_pairs_);
  }

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t tokens = tokens_.of(counts), rows = x_rows_.of(counts);
    if (tokens == 0) return;
    const RoundedInput::View view = input_.round(team, x_, w_.k, rows);
    if (!input_.is_private(rows)) team.barrier();
    const ActView& act = input_.of(view, w_.act);
    // Sorting the pairs takes less time than waiting for one worker who does.
    ExpertGroups groups(groups_.of(team), max_pairs_, n_expert_);
    groups.build({ids_, tokens, n_used_, begin_, end_});
    std::int32_t* pair_at = pairs_.of(team);
    for (std::int64_t pair = 0; pair < tokens * n_used_; ++pair)
      if (groups.position(pair) >= 0) pair_at[groups.position(pair)] = static_cast<std::int32_t>(pair);
    const std::int64_t units = (w_.n + kRowUnit - 1) / kRowUnit;  // per expert
    const std::int64_t n_units = units * groups.n_groups();
    team.for_chunks(n_units, chunk_for(n_units, team.size(), 1), [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {
        const std::int64_t group = begin / units;
        const std::int64_t last = std::min(end, (group + 1) * units);
        const std::int32_t* pair_rows = pair_at + groups.begin(group);
        const std::int64_t n0 = (begin - group * units) * kRowUnit;
        run_product(w_, kernels_,
                    {.act = act,
                     .src_rows = shared_row_ ? groups.tokens(group) : pair_rows,
                     .expert = groups.expert(group),
                     .scratch = scratch_.of(team)},
                    {.y = dst_ + n0,
                     .stride = w_.n,
                     .m_rows = groups.size(group),
                     .n0 = n0,
                     .n1 = std::min((last - group * units) * kRowUnit, w_.n),
                     .rows = pair_rows});
        begin = last;
      }
    });
    const Team::Range own = team.part(tokens * n_used_);
    for (std::int64_t pair = own.begin; pair < own.end; ++pair)
      if (groups.position(pair) < 0) std::memset(dst_ + pair * w_.n, 0, sizeof(float) * static_cast<std::size_t>(w_.n));
  }

 private:
  const KernelTable& kernels_;
  const Projection w_;
  const float* x_;
  const std::int32_t* ids_;
  float* dst_;
  const int n_used_;
  const int n_expert_;
  const bool shared_row_;  // the pairs of a token read one row of x
  const LiveRows tokens_, x_rows_;
  int begin_ = 0, end_ = 0;
  std::int64_t max_pairs_ = 0;
  RoundedInput input_;
  PerWorker<std::byte> scratch_;
  PerWorker<std::int32_t> groups_, pairs_;
};

/// Whether a tensor holds what quantise_act gives in this form.
bool is_rounded(const Graph& graph, TensorId id, ActType form) {
  if (form == ActType::f32) return true;
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.op == Op::quantise_act && node.dst[0] == id && std::get<QuantiseActParams>(node.params).act == form;
  });
}

const char* declines(const Graph& graph, const KernelTable& kernels, const Node& node) {
  const Tensor& w = graph.at(node.src[0]);
  if (w.role != TensorRole::weight) return "a part of a weight";
  if (!node.slots.empty()) return "a tapped slot needs its input in memory";
  if (const char* why = why_not_projection(graph, kernels, Slot{node.src[0], {}, {}, false})) return why;
  return is_rounded(graph, node.src[1], type_info(w.type).act) ? nullptr : "its input may not be rounded";
}

}  // namespace

const OpImpl kExpertProduct{"expert_product", declines, bind_as<ExpertProduct>};

}  // namespace ggml::cpu
