#include "cpu/ops/top_k.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/ops/registry.h"

namespace ggml::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr float kSmallestSum =
    6.103515625e-5f;  // the least normal half: the floor that the spec gives for the division

float comparable(float score) noexcept {
  return std::isnan(score) ? kMinusInf : score;
}

/// Sum of the two largest scores of a group.
float group_score(const float* scores, std::int64_t n) noexcept {
  float first = kMinusInf, second = kMinusInf;
  for (std::int64_t i = 0; i < n; ++i) {
    const float s = comparable(scores[i]);
    if (s > first) {
      second = first;
      first = s;
    } else if (s > second) {
      second = s;
    }
  }
  return n == 1 ? first : first + second;
}

/// Whether group `g` is among the `n_best` best; ties go to the lower group.
bool is_among_best(const float* group_scores, int n_groups, int g, int n_best) noexcept {
  int better = 0;
  for (int other = 0; other < n_groups; ++other) {
    if (group_scores[other] > group_scores[g] || (group_scores[other] == group_scores[g] && other < g)) ++better;
  }
  return better < n_best;
}

}  // namespace

void top_k(const TopKParams& params, const TopKArgs& args) noexcept {
  const float* scores = args.scores;
  if (params.n_groups > 1) {
    const std::int64_t size = args.n / params.n_groups;
    float* group_scores = args.masked + args.n;
    for (int g = 0; g < params.n_groups; ++g) group_scores[g] = group_score(scores + g * size, size);
    for (int g = 0; g < params.n_groups; ++g) {
      const bool kept = is_among_best(group_scores, params.n_groups, g, params.n_groups_used);
      for (std::int64_t i = g * size; i < (g + 1) * size; ++i) args.masked[i] = kept ? scores[i] : kMinusInf;
    }
    scores = args.masked;
  }
  int filled = 0;
  for (std::int64_t i = 0; i < args.n; ++i) {
    const float s = comparable(scores[i]);
    if (filled == params.k && !(s > args.best[filled - 1])) continue;
    int at = filled < params.k ? filled++ : filled - 1;
    for (; at > 0 && s > args.best[at - 1]; --at) {
      args.best[at] = args.best[at - 1];
      args.ids[at] = args.ids[at - 1];
    }
    args.best[at] = s;
    args.ids[at] = static_cast<std::int32_t>(i);
  }
  if (params.keep_ratio <= 0.0f) return;
  const float least = params.keep_ratio * args.best[0];
  for (int rank = params.min_kept; rank < params.k; ++rank)
    if (!(args.best[rank] >= least)) args.ids[rank] = -1;
}

void gather_weights(const GatherParams& params, const float* x, std::int64_t n, const std::int32_t* ids, std::int64_t k,
                    float* dst) noexcept {
  const float outside = params.softmax ? kMinusInf : 0.0f;
  for (std::int64_t i = 0; i < k; ++i) dst[i] = ids[i] >= 0 && ids[i] < n ? x[ids[i]] : outside;
  if (params.softmax) {
    float max = kMinusInf, sum = 0.0f;
    for (std::int64_t i = 0; i < k; ++i) max = std::max(max, dst[i]);
    for (std::int64_t i = 0; i < k; ++i) sum += dst[i] = std::exp(dst[i] - max);
    for (std::int64_t i = 0; i < k; ++i) dst[i] /= sum;
  }
  if (params.normalise) {
    float sum = 0.0f;
    for (std::int64_t i = 0; i < k; ++i) sum += dst[i];
    sum = std::max(sum, kSmallestSum);
    for (std::int64_t i = 0; i < k; ++i) dst[i] /= sum;
  }
  if (params.scale != 1.0f) {
    for (std::int64_t i = 0; i < k; ++i) dst[i] *= params.scale;
  }
}

namespace {

/// Primitive: ids by falling value.
class TopK final : public BoundOp {
 public:
  TopK(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<TopKParams>(node.params)),
        x_(c.data<const float>(node.src[0])),
        dst_(c.data<std::int32_t>(node.dst[0])),
        n_(c.tensor(node.src[0]).shape[0]),
        rows_(c.live_rows(node.src[0], n_)),
        masked_(carver, c.n_workers(), n_ + p_.n_groups),
        best_(carver, c.n_workers(), p_.k) {}
  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      top_k(p_, {x_ + row * n_, n_, masked_.of(team), best_.of(team), dst_ + row * p_.k});
    }
  }

 private:
  const TopKParams p_;
  const float* x_;
  std::int32_t* dst_;
  std::int64_t n_;
  LiveRows rows_;
  PerWorker<float> masked_, best_;
};

/// Primitive: values at the chosen ids.
class Gather final : public BoundOp {
 public:
  Gather(const BindContext& c, const Node& node, Carver&)
      : p_(std::get<GatherParams>(node.params)),
        x_(c.data<const float>(node.src[0])),
        ids_(c.data<const std::int32_t>(node.src[1])),
        dst_(c.data<float>(node.dst[0])),
        n_(c.tensor(node.src[0]).shape[0]),
        k_(c.tensor(node.src[1]).shape[0]),
        rows_(c.live_rows(node.src[1], k_)) {
    // A single vector serves every token; so does a weight whatever its shape.
    x_stride_ = c.live_rows(node.src[0], n_).rows == Rows::fixed && c.tensor(node.src[0]).shape.rows() == 1 ? 0 : n_;
  }
  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      gather_weights(p_, x_ + row * x_stride_, n_, ids_ + row * k_, k_, dst_ + row * k_);
    }
  }

 private:
  const GatherParams p_;
  const float* x_;
  const std::int32_t* ids_;
  float* dst_;
  std::int64_t n_, k_;
  LiveRows rows_;
  std::int64_t x_stride_ = 0;
};

}  // namespace

const OpImpl kTopK{"top_k", accepts_always, bind_as<TopK>};
const OpImpl kGather{"gather", accepts_always, bind_as<Gather>};

}  // namespace ggml::cpu
