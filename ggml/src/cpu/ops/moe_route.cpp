#include <cmath>

#include "cpu/ops/activation.h"
#include "cpu/ops/projection.h"
#include "cpu/ops/registry.h"
#include "cpu/ops/top_k.h"

namespace ggml::cpu {
namespace {

/// Router product, probabilities, choice and weights in one node.
class MoeRoute final : public BoundOp {
 public:
  MoeRoute(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<MoeRouteParams>(node.params)),
        vec_(c.kernels().vec),
        x_(c.data<const float>(node.src[0])),
        bias_(p_.has_selection_bias ? c.data<const float>(node.slots[1].weight) : nullptr),
        ids_(c.data<std::int32_t>(node.dst[0])),
        weights_(c.data<float>(node.dst[1])),
        router_(c.tensor(node.slots[0].weight).weight) {
    const Projection p = bind_projection(c, node.slots[0]);
    k_ = p.k;
    rows_ = c.live_rows(node.src[0], k_);
    logits_ = carver.array<float>(rows_.capacity * p_.n_expert);
    const ProjectionGroup::Member member{p, logits_, p_.n_expert};
    group_ = ProjectionGroup(c, std::span(&member, 1), rows_.capacity, carver);
    // Selection scores, their masked copy with room for the groups' scores, and the best scores so far.
    work_ = PerWorker<float>(carver, c.n_workers(), 2 * p_.n_expert + p_.n_groups + p_.n_used);
  }

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t rows = rows_.of(counts);
    group_.run(team, x_, k_, rows);
    team.barrier();
    const Team::Range own = team.part(rows);
    for (std::int64_t row = own.begin; row < own.end; ++row) choose(team, row);
  }

  void report_taps(Observer& observer, const StepCounts& counts) const override {
    observer.on_slot(*router_, {x_, static_cast<std::size_t>(k_ * rows_.of(counts))}, {});
  }

 private:
  void choose(Team& team, std::int64_t row) const noexcept {
    const int n = p_.n_expert;
    float* probs = logits_ + row * n;
    to_probabilities(probs);
    float* choice = work_.of(team);
    const float* scores = probs;
    if (bias_ != nullptr) {
      vec_.add(probs, bias_, n, choice);
      scores = choice;
    }
    std::int32_t* ids = ids_ + row * p_.n_used;
    top_k({p_.n_used, p_.n_groups, p_.n_groups_used, p_.min_used, p_.keep_ratio},
          {scores, n, choice + n, choice + 2 * n + p_.n_groups, ids});
    const float scale = p_.scale == 0.0f ? 1.0f : p_.scale;  // files say 0 for "do not scale"
    gather_weights({p_.normalise, p_.gating == Gating::softmax_selected, scale}, probs, n, ids, p_.n_used,
                   weights_ + row * p_.n_used);
  }

  void to_probabilities(float* x) const noexcept {
    const int n = p_.n_expert;
    switch (p_.gating) {
      case Gating::softmax:
        return vec_.softmax(x, n, x);
      case Gating::sigmoid:
        return vec_.sigmoid(x, n, x);
      case Gating::sqrt_softplus:
        apply_activation(vec_, Activation::softplus, x, n, x);
        for (int i = 0; i < n; ++i) x[i] = std::sqrt(x[i]);
        return;
      case Gating::softmax_selected:
        return;
    }
  }

  const MoeRouteParams p_;
  const VecKernels& vec_;
  const float* x_;
  const float* bias_;
  std::int32_t* ids_;
  float* weights_;
  const Weight* router_;
  std::int64_t k_ = 0;
  LiveRows rows_;
  float* logits_ = nullptr;
  ProjectionGroup group_;
  PerWorker<float> work_;
};

const char* declines(const Graph& graph, const KernelTable& kernels, const Node& node) {
  return why_not_projection(graph, kernels, node.slots[0]);
}

}  // namespace

const OpImpl kMoeRoute{"moe_route", declines, bind_as<MoeRoute>};

}  // namespace ggml::cpu
