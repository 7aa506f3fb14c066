#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/ops/kv_cache.h"
#include "cpu/ops/registry.h"

// Attention as primitives: the append, and a plain softmax over all cells of one (row, head) after another. This is the
// meaning that flash attention is checked against, and what `-fa off` runs.

namespace ggml::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

class KvAppend final : public BoundOp {
 public:
  KvAppend(const BindContext& c, const Node& node, Carver&)
      : appender_(std::get<KvAppendParams>(node.params).kv, c.kernels()),
        k_(c.data<const float>(node.src[0])),
        v_(c.data<const float>(node.src[1])),
        cache_(std::get<KvAppendParams>(node.params).kv, c.address(node.src[2]),
               c.data<const std::int32_t>(node.src[4])),
        spans_(c.data<const AttnSpan>(node.src[3])) {}
  void run(Team& team, const StepCounts& counts) const noexcept override {
    appender_.append({k_, v_, cache_, spans_, counts.n_spans}, team.worker(), team.size());
  }

 private:
  const KvAppender appender_;
  const float* k_;
  const float* v_;
  const KvCache cache_;
  const AttnSpan* spans_;
};

class AttnDense final : public BoundOp {
 public:
  AttnDense(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<AttentionParams>(node.params)),
        vec_(c.kernels().vec),
        k_load_(c.kernels().kv_of(p_.kv.k_type).load),
        v_load_(c.kernels().kv_of(p_.v_of_k > 0 ? p_.kv.k_type : p_.kv.v_type).load),
        dv_(p_.v_of_k > 0 ? p_.v_of_k : p_.kv.dv),
        q_(c.data<const float>(node.src[0])),
        cache_(p_.kv, c.address(node.src[1]), c.data<const std::int32_t>(node.src[3])),
        spans_(c.data<const AttnSpan>(node.src[2])),
        sinks_(p_.has_sinks ? c.data<const float>(node.slots[0].weight) : nullptr),
        dst_(c.data<float>(node.dst[0])),
        scores_(carver, c.n_workers(), c.tensor(node.src[3]).shape.elements() * kKvBlockTokens),
        row_(carver, c.n_workers(), std::max(p_.kv.dk, p_.kv.dv)) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    std::int64_t rows = 0;
    for (int s = 0; s < counts.n_spans; ++s) rows += std::max(0, spans_[s].n_rows);
    team.for_chunks(rows * p_.n_head, 1, [&](std::int64_t item, std::int64_t) {
      int row = static_cast<int>(item / p_.n_head);
      int s = 0;
      for (; row >= std::max(0, spans_[s].n_rows); ++s) row -= std::max(0, spans_[s].n_rows);
      attend(team, spans_[s], row, static_cast<int>(item % p_.n_head));
    });
  }

 private:
  /// Calls f(cell, block) for each stored cell the range holds.
  template <class F>
  void each_cell(const AttnSpan& span, const CellRange& range, const F& f) const noexcept {
    for (int cell = std::max(range.begin, span.first_block * kKvBlockTokens); cell < range.end; ++cell) {
      const std::byte* block = cache_.block(span, cell / kKvBlockTokens);
      if (block != nullptr) f(cell, block);
    }
  }

  void attend(Team& team, const AttnSpan& span, int row, int head) const noexcept {
    const int cell = span.first_cell + row;
    const CellRange range = visible_cells(p_, cell, span.first_cell + span.n_rows);
    const int head_kv = head / (p_.n_head / p_.kv.n_head_kv);
    const std::int64_t vector = (std::int64_t{span.first_row} + row) * p_.n_head + head;
    const float slope = alibi_slope(p_.max_alibi_bias, p_.n_head, head);
    float* scores = scores_.of(team);
    float* loaded = row_.of(team);
    std::int64_t n = 0;
    each_cell(span, range, [&](int u, const std::byte* block) {
      const KvTile k = KvCache::tile(cache_.k(), block, head_kv, u % kKvBlockTokens, 1);
      k_load_(k.values, k.scales, k.dim, loaded);
      float s = p_.scale * vec_.dot(q_ + vector * p_.kv.dk, loaded, k.dim);
      if (p_.softcap > 0.0f) s = p_.softcap * std::tanh(s / p_.softcap);
      scores[n++] = s - slope * static_cast<float>(std::abs(cell - u));
    });
    const float factor = to_weights(scores, n, head);
    float* y = dst_ + vector * dv_;
    std::fill(y, y + dv_, 0.0f);
    n = 0;
    each_cell(span, range, [&](int u, const std::byte* block) {
      const KvPlane& plane = p_.v_of_k > 0 ? cache_.k() : cache_.v();
      const KvTile v = KvCache::tile(plane, block, head_kv, u % kKvBlockTokens, 1);
      v_load_(v.values, v.scales, v.dim, loaded);
      vec_.axpy(scores[n++] * factor, loaded, dv_, y);
    });
  }

  /// Scores to exp(s - max); returns what they are to be multiplied with.
  float to_weights(float* scores, std::int64_t n, int head) const noexcept {
    float max = vec_.max(scores, n);
    if (max == kMinusInf) return 0.0f;
    if (sinks_ != nullptr) max = std::max(max, sinks_[head]);
    float sum = vec_.exp_sub_max(scores, max, n, scores);
    if (sinks_ != nullptr) sum += std::exp(sinks_[head] - max);
    return 1.0f / sum;
  }

  const AttentionParams p_;
  const VecKernels& vec_;
  const KvLoadFn k_load_, v_load_;
  const std::int64_t dv_;
  const float* q_;
  const KvCache cache_;
  const AttnSpan* spans_;
  const float* sinks_;
  float* dst_;
  PerWorker<float> scores_, row_;
};

const char* append_declines(const Graph&, const KernelTable& kernels, const Node& node) {
  const KvLayout& kv = std::get<KvAppendParams>(node.params).kv;
  if (kernels.kv_of(kv.k_type).store == nullptr) return "no kernel for this type of K";
  if (kv.dv > 0 && kernels.kv_of(kv.v_type).store == nullptr) return "no kernel for this type of V";
  return nullptr;
}

const char* dense_declines(const Graph&, const KernelTable& kernels, const Node& node) {
  const auto& p = std::get<AttentionParams>(node.params);
  const KvLayout& kv = p.kv;
  if (kernels.kv_of(kv.k_type).load == nullptr) return "no kernel for this type of K";
  if (p.v_of_k > 0) return nullptr;
  if (kv.dv <= 0 || kernels.kv_of(kv.v_type).load == nullptr) return "no kernel for this type of V";
  return nullptr;
}

}  // namespace

const OpImpl kKvAppend{"kv_append", append_declines, bind_as<KvAppend>};
const OpImpl kAttnDense{"attn_dense", dense_declines, bind_as<AttnDense>};

}  // namespace ggml::cpu
