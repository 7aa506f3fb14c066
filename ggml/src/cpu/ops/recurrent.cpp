#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/ops/activation.h"
#include "cpu/ops/delta_chunk.h"
#include "cpu/ops/registry.h"

// The ops of recurrent layers. Their states lie in slots of the layer's pool; a span names the slot its state is read
// from, the one it goes to, and one for the state before the last row, so that a sequence can be cut back to there.

namespace ggml::cpu {
namespace {

class States {
 public:
  States(std::byte* pool, const StateLayout& layout) : floats_(reinterpret_cast<float*>(pool)), layout_(layout) {}
  /// Null for the slot -1.
  [[nodiscard]] float* at(std::int32_t slot) const noexcept {
    return slot < 0 ? nullptr : floats_ + slot * layout_.slot_floats + layout_.offset;
  }

 private:
  float* floats_;
  StateLayout layout_;
};

/// Short causal convolution per channel. An item is a run of channels of one span.
class Conv1d final : public BoundOp {
 public:
  Conv1d(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<Conv1dParams>(node.params)),
        vec_(c.kernels().vec),
        channels_(c.tensor(node.src[0]).shape[0]),
        x_(c.data<const float>(node.src[0])),
        states_(c.address(node.src[1]), p_.state),
        spans_(c.data<const AttnSpan>(node.src[2])),
        filters_(c.data<const float>(node.slots[0].weight)),
        dst_(c.data<float>(node.dst[0])),
        taps_(carver, c.n_workers(), std::int64_t{p_.kernel} * kChannels) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t runs = (channels_ + kChannels - 1) / kChannels;
    team.for_chunks(runs * counts.n_spans, 1, [&](std::int64_t item, std::int64_t) {
      const std::int64_t first = item % runs * kChannels;
      convolve(spans_[item / runs], first, std::min(kChannels, channels_ - first), taps_.of(team));
    });
  }

 private:
  static constexpr std::int64_t kChannels = 256;

  /// Row `row` of the span, counted from its first new one; negative: from the state. Null: zeros.
  [[nodiscard]] const float* row_at(const AttnSpan& span, std::int64_t row) const noexcept {
    if (row >= 0) return x_ + (span.first_row + row) * channels_;
    const float* state = states_.at(span.state_slot);
    return state == nullptr ? nullptr : state + (p_.kernel - 1 + row) * channels_;
  }

  void convolve(const AttnSpan& span, std::int64_t first, std::int64_t n, float* taps) const noexcept {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t tap = 0; tap < p_.kernel; ++tap)
        taps[tap * kChannels + i] = filters_[(first + i) * p_.kernel + tap];
    for (std::int64_t row = 0; row < span.n_rows; ++row) {
      float* y = dst_ + (span.first_row + row) * channels_ + first;
      std::memset(y, 0, sizeof(float) * static_cast<std::size_t>(n));
      for (std::int64_t tap = 0; tap < p_.kernel; ++tap) {
        const float* x = row_at(span, row - (p_.kernel - 1) + tap);
        if (x == nullptr) continue;
        const float* w = taps + tap * kChannels;
        for (std::int64_t i = 0; i < n; ++i) y[i] += w[i] * x[first + i];
      }
      if (p_.act == Activation::silu) vec_.silu(y, n, y);
    }
    // The older state is read while the newer is written, possibly to the same place: ascending, oldest row first.
    keep(span, span.n_rows - 1, states_.at(span.state_before_last), first, n);
    keep(span, span.n_rows, states_.at(span.state_to), first, n);
  }

  /// The state after `n_rows` rows.
  void keep(const AttnSpan& span, std::int64_t n_rows, float* to, std::int64_t first, std::int64_t n) const noexcept {
    if (to == nullptr) return;
    for (std::int64_t i = 0; i < p_.kernel - 1; ++i) {
      const float* x = row_at(span, n_rows - (p_.kernel - 1) + i);
      float* y = to + i * channels_ + first;
      if (x == nullptr)
        std::memset(y, 0, sizeof(float) * static_cast<std::size_t>(n));
      else
        std::memmove(y, x + first, sizeof(float) * static_cast<std::size_t>(n));
    }
  }

  const Conv1dParams p_;
  const VecKernels& vec_;
  const std::int64_t channels_;
  const float* x_;
  const States states_;
  const AttnSpan* spans_;
  const float* filters_;
  float* dst_;
  PerWorker<float> taps_;
};

using RuleRow = DeltaChunk::Row;

/// The state of one value head, [value][key], and the step from one row to the next.
void advance(const VecKernels& vec, std::int64_t d, const RuleRow& row, float* state, float* out) noexcept {
  for (std::int64_t j = 0; j < d; ++j) {
    float* line = state + j * d;
    const float seen = row.decay * vec.dot(line, row.k, d);
    const float change = row.beta * (row.v[j] - seen);
    vec.scale(line, row.decay, d, line);
    vec.axpy(change, row.k, d, line);
    out[j] = vec.dot(line, row.q, d);
  }
}

/// What both forms of the recurrence share: an item is a value head of a span, whose state stays in the cache.
class DeltaRuleLoop {
 public:
  DeltaRuleLoop(const DeltaNetParams& p, const KernelTable& kernels, std::byte* pool, const AttnSpan* spans)
      : p_(p), kernels_(kernels), vec_(kernels.vec), states_(pool, p.state), spans_(spans) {}

  /// `row_of(row, head, key_head)` gives the inputs; results go to dst [head_dim * n_head_v, T]. Where there is scratch
  /// for it, rows of a span are taken several at a time.
  template <class RowOf>
  void run(Team& team, const StepCounts& counts, float* dst, const RowOf& row_of, float* scratch) const noexcept {
    team.for_chunks(std::int64_t{counts.n_spans} * p_.n_head_v, 1, [&](std::int64_t item, std::int64_t) {
      const AttnSpan& span = spans_[item / p_.n_head_v];
      const std::int64_t head = item % p_.n_head_v;
      const std::int64_t key_head = p_.tiled ? head % p_.n_head_k : head / (p_.n_head_v / p_.n_head_k);
      float* state = start(span, head);
      const std::int64_t stride = std::int64_t{p_.n_head_v} * p_.head_dim;
      // The last row is taken by itself: the state before it may be kept.
      const std::int64_t in_chunks =
          scratch == nullptr ? 0 : DeltaChunk::rows_in_chunks(std::max(std::int64_t{span.n_rows} - 1, std::int64_t{0}));
      if (in_chunks > 0) {
        DeltaChunk chunk(kernels_, p_.head_dim, scratch);
        for (std::int64_t i = 0; i < in_chunks; ++i) {
          chunk.add(row_of(team, span.first_row + i, head, key_head));
          if (!chunk.is_full() && i + 1 < in_chunks) continue;
          const std::int64_t first = span.first_row + i + 1 - chunk.rows();
          chunk.finish(state, dst + first * stride + head * p_.head_dim, stride);
        }
      }
      for (std::int64_t i = in_chunks; i < span.n_rows; ++i) {
        if (i + 1 == span.n_rows) save(states_.at(span.state_before_last), head, state);
        const std::int64_t row = span.first_row + i;
        advance(vec_, p_.head_dim, row_of(team, row, head, key_head), state, dst + row * stride + head * p_.head_dim);
      }
    });
  }

 private:
  [[nodiscard]] std::int64_t square() const noexcept { return std::int64_t{p_.head_dim} * p_.head_dim; }

  /// The span's state, brought to where its new one will be.
  float* start(const AttnSpan& span, std::int64_t head) const noexcept {
    float* state = states_.at(span.state_to) + head * square();
    const float* old = states_.at(span.state_slot);
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(square());
    if (old == nullptr)
      std::memset(state, 0, bytes);
    else if (span.state_slot != span.state_to)
      std::memcpy(state, old + head * square(), bytes);
    return state;
  }
  void save(float* to, std::int64_t head, const float* state) const noexcept {
    if (to != nullptr) std::memcpy(to + head * square(), state, sizeof(float) * static_cast<std::size_t>(square()));
  }

  const DeltaNetParams p_;
  const KernelTable& kernels_;
  const VecKernels& vec_;
  const States states_;
  const AttnSpan* spans_;
};

/// Primitive: everything but the recurrence was done before.
class DeltaRule final : public BoundOp {
 public:
  DeltaRule(const BindContext& c, const Node& node, Carver&)
      : p_(std::get<DeltaNetParams>(node.params)),
        q_(c.data<const float>(node.src[0])),
        k_(c.data<const float>(node.src[1])),
        v_(c.data<const float>(node.src[2])),
        g_(c.data<const float>(node.src[3])),
        beta_(c.data<const float>(node.src[4])),
        loop_(p_, c.kernels(), c.address(node.src[5]), c.data<const AttnSpan>(node.src[6])),
        dst_(c.data<float>(node.dst[0])) {}
  void run(Team& team, const StepCounts& counts) const noexcept override {
    loop_.run(
        team, counts, dst_,
        [&](Team&, std::int64_t row, std::int64_t head, std::int64_t key_head) {
          const std::int64_t at_v = row * p_.n_head_v + head, at_k = (row * p_.n_head_k + key_head) * p_.head_dim;
          return RuleRow{q_ + at_k, k_ + at_k, v_ + at_v * p_.head_dim, std::exp(g_[at_v]), beta_[at_v]};
        },
        nullptr);
  }

 private:
  const DeltaNetParams p_;
  const float* q_;
  const float* k_;
  const float* v_;
  const float* g_;
  const float* beta_;
  const DeltaRuleLoop loop_;
  float* dst_;
};

/// The whole op: a head's norms and gates are computed where they are used.
class DeltaNet final : public BoundOp {
 public:
  DeltaNet(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<DeltaNetParams>(node.params)),
        vec_(c.kernels().vec),
        width_(std::int64_t{p_.head_dim} * (2 * p_.n_head_k + p_.n_head_v)),
        qkv_(c.data<const float>(node.src[0])),
        beta_(c.data<const float>(node.src[1])),
        alpha_(c.data<const float>(node.src[2])),
        loop_(p_, c.kernels(), c.address(node.src[3]), c.data<const AttnSpan>(node.src[4])),
        a_(c.data<const float>(node.slots[0].weight)),
        dt_(c.data<const float>(node.slots[0].bias)),
        dst_(c.data<float>(node.dst[0])),
        keys_(carver, c.n_workers(), 2 * std::int64_t{p_.head_dim}),
        chunk_(carver, c.n_workers(), DeltaChunk::scratch_floats(p_.head_dim)) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    loop_.run(
        team, counts, dst_,
        [&](Team& worker, std::int64_t row, std::int64_t head, std::int64_t key_head) {
          const std::int64_t d = p_.head_dim, at = row * p_.n_head_v + head;
          const float* x = qkv_ + row * width_;
          float* q = keys_.of(worker);
          float* k = q + d;
          normalise(x + key_head * d, 1.0f / std::sqrt(static_cast<float>(d)), q);
          normalise(x + (p_.n_head_k + key_head) * d, 1.0f, k);
          float g = alpha_[at] + dt_[head];
          apply_activation(vec_, Activation::softplus, &g, 1, &g);
          float beta = 0.0f;
          vec_.sigmoid(beta_ + at, 1, &beta);
          return RuleRow{q, k, x + (2 * p_.n_head_k + head) * d, std::exp(g * a_[head]), beta};
        },
        chunk_.of(team));
  }

 private:
  void normalise(const float* x, float factor, float* y) const noexcept {
    const float norm = std::max(std::sqrt(vec_.dot(x, x, p_.head_dim)), p_.eps);
    vec_.scale(x, factor / norm, p_.head_dim, y);
  }

  const DeltaNetParams p_;
  const VecKernels& vec_;
  const std::int64_t width_;
  const float* qkv_;
  const float* beta_;
  const float* alpha_;
  const DeltaRuleLoop loop_;
  const float* a_;
  const float* dt_;
  float* dst_;
  PerWorker<float> keys_;
  PerWorker<float> chunk_;  // for prompts
};

}  // namespace

const OpImpl kConv1d{"conv1d", accepts_always, bind_as<Conv1d>};
const OpImpl kDeltaRule{"delta_rule", accepts_always, bind_as<DeltaRule>};
const OpImpl kDeltaNet{"delta_net", accepts_always, bind_as<DeltaNet>};

}  // namespace ggml::cpu
