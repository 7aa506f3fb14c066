#include <algorithm>
#include <cmath>
#include <vector>

#include "ops.h"

namespace ggml::reference {

namespace {

/// The states of one layer, as floats behind a port.
class States {
 public:
  States(Memory& m, TensorId pool, const StateLayout& layout)
      : floats_(reinterpret_cast<float*>(m.raw(pool))), layout_(layout) {}

  /// `n` values of a slot; zeros for the slot -1.
  [[nodiscard]] std::vector<double> load(std::int32_t slot, std::int64_t first, std::int64_t n) const {
    std::vector<double> values(static_cast<std::size_t>(n), 0.0);
    if (slot >= 0)
      std::transform(at(slot) + first, at(slot) + first + n, values.begin(),
                     [](float v) { return static_cast<double>(v); });
    return values;
  }
  void store(std::int32_t slot, std::int64_t first, const double* values, std::int64_t n) const {
    if (slot < 0) return;
    std::transform(values, values + n, at(slot) + first, [](double v) { return static_cast<float>(v); });
  }

 private:
  [[nodiscard]] float* at(std::int32_t slot) const { return floats_ + slot * layout_.slot_floats + layout_.offset; }

  float* floats_;
  StateLayout layout_;
};

const AttnSpan* spans_of(Memory& m, TensorId id) {
  return reinterpret_cast<const AttnSpan*>(m.raw(id));
}

}  // namespace

void conv1d(Memory& m, const Node& node) {
  const auto& p = std::get<Conv1dParams>(node.params);
  const std::int64_t channels = m.at(node.src[0]).shape[0], kept = p.kernel - 1;
  const States states(m, node.src[1], p.state);
  const AttnSpan* spans = spans_of(m, node.src[2]);
  const double* x = m.read(node.src[0]);
  const double* filters = m.read(node.slots[0].weight);
  double* y = m.write(node.dst[0]);
  for (int s = 0; s < m.counts().n_spans; ++s) {
    const AttnSpan& span = spans[s];
    // Rows of the past, then those of the step.
    std::vector<double> rows = states.load(span.state_slot, 0, channels * kept);
    const double* first = x + span.first_row * channels;
    rows.insert(rows.end(), first, first + span.n_rows * channels);
    for (std::int64_t t = 0; t < span.n_rows; ++t)
      for (std::int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (std::int64_t tap = 0; tap < p.kernel; ++tap)
          sum += filters[c * p.kernel + tap] * rows[static_cast<std::size_t>((t + tap) * channels + c)];
        if (p.act == Activation::silu) sum /= 1.0 + std::exp(-sum);
        y[(span.first_row + t) * channels + c] = sum;
      }
    states.store(span.state_before_last, 0, rows.data() + (span.n_rows - 1) * channels, channels * kept);
    states.store(span.state_to, 0, rows.data() + span.n_rows * channels, channels * kept);
  }
}

void delta_rule(Memory& m, const Node& node) {
  const auto& p = std::get<DeltaNetParams>(node.params);
  const std::int64_t d = p.head_dim, square = d * d;
  const double* q = m.read(node.src[0]);
  const double* k = m.read(node.src[1]);
  const double* v = m.read(node.src[2]);
  const double* g = m.read(node.src[3]);
  const double* beta = m.read(node.src[4]);
  const States states(m, node.src[5], p.state);
  const AttnSpan* spans = spans_of(m, node.src[6]);
  double* y = m.write(node.dst[0]);
  for (int s = 0; s < m.counts().n_spans; ++s)
    for (std::int64_t head = 0; head < p.n_head_v; ++head) {
      const AttnSpan& span = spans[s];
      const std::int64_t key_head = p.tiled ? head % p.n_head_k : head / (p.n_head_v / p.n_head_k);
      std::vector<double> state = states.load(span.state_slot, head * square, square);
      for (std::int64_t row = span.first_row; row < span.first_row + span.n_rows; ++row) {
        if (row + 1 == span.first_row + span.n_rows)
          states.store(span.state_before_last, head * square, state.data(), square);
        const std::int64_t at_v = row * p.n_head_v + head, at_k = row * p.n_head_k + key_head;
        for (std::int64_t j = 0; j < d; ++j) {
          double* line = state.data() + j * d;
          double seen = 0, out = 0;
          for (std::int64_t i = 0; i < d; ++i) seen += (line[i] *= std::exp(g[at_v])) * k[at_k * d + i];
          const double change = beta[at_v] * (v[at_v * d + j] - seen);
          for (std::int64_t i = 0; i < d; ++i) out += (line[i] += change * k[at_k * d + i]) * q[at_k * d + i];
          y[at_v * d + j] = out;
        }
      }
      states.store(span.state_to, head * square, state.data(), square);
    }
}

void pool(Memory& m, const Node& node) {
  const PoolKind kind = std::get<PoolParams>(node.params).kind;
  const std::int64_t n = m.at(node.src[0]).shape[0];
  const AttnSpan* spans = spans_of(m, node.src[1]);
  const double* x = m.read(node.src[0]);
  double* y = m.write(node.dst[0]);
  for (int s = 0; s < m.counts().n_spans; ++s, y += n) {
    const std::int64_t first = spans[s].first_row, last = first + spans[s].n_rows - 1;
    std::fill(y, y + n, 0.0);
    const std::int64_t begin = kind == PoolKind::last ? last : first;
    const std::int64_t end = kind == PoolKind::first ? first : last;
    for (std::int64_t row = begin; row <= end; ++row)
      for (std::int64_t i = 0; i < n; ++i) y[i] += x[row * n + i] / static_cast<double>(end - begin + 1);
  }
}

}  // namespace ggml::reference
