#include <algorithm>

#include "ops.h"

namespace ggml::reference {

namespace {

// Four running sums: enough for tests of whole tiny models to stay well under a second.
double dot(const double* a, const double* b, std::int64_t n) {
  double sum[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (std::int64_t k = 0; k < 4; ++k) sum[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

struct Range {
  int begin, end;
  bool holds(double id) const { return id >= begin && id < end; }
};

Range range(int begin, int end, std::int64_t n_expert) {
  return {begin, end == 0 ? static_cast<int>(n_expert) : end};
}

}  // namespace

void get_rows(Memory& m, const Node& node) {
  const Shape table = m.at(node.src[0]).shape;
  const std::int64_t n = table[0];
  // Rows of an activation beyond the real ones hold nothing.
  const std::int64_t rows = std::min(table[1], m.live(node.src[0]) / n);
  const double* x = m.read(node.src[0]);
  const double* ids = m.read(node.src[1]);
  double* y = m.write(node.dst[0]);
  for (std::int64_t i = 0; i < m.live(node.src[1]); ++i) {
    const auto id = static_cast<std::int64_t>(ids[i]);
    if (id >= 0 && id < rows)
      std::copy(x + id * n, x + (id + 1) * n, y + i * n);
    else
      std::fill(y + i * n, y + (i + 1) * n, 0.0);
  }
}

void mul_mat(Memory& m, const Node& node) {
  const std::int64_t k = m.at(node.src[0]).shape[0], n = m.at(node.src[0]).shape[1];
  const double* w = m.read(node.src[0]);
  const double* x = m.read(node.src[1]);
  double* y = m.write(node.dst[0]);
  for (std::int64_t row = 0; row < m.live(node.src[1]) / k; ++row)
    for (std::int64_t i = 0; i < n; ++i) y[row * n + i] = dot(w + i * k, x + row * k, k);
}

void mul_mat_heads(Memory& m, const Node& node) {
  const auto& p = std::get<MulMatHeadsParams>(node.params);
  const Shape x_shape = m.at(node.src[1]).shape;
  const std::int64_t k = x_shape[0];
  const double* w = m.read(node.src[0]);
  const double* x = m.read(node.src[1]);
  double* y = m.write(node.dst[0]);
  const std::int64_t tokens = m.live(node.src[1]) / (k * x_shape[1]);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t head = 0; head < p.n_head; ++head) {
      const double* in = x + (x_shape[1] == 1 ? t : t * p.n_head + head) * k;
      const double* matrix = w + (head * p.rows_per_head + p.begin) * k;
      for (std::int64_t i = 0; i < p.count; ++i) *y++ = dot(matrix + i * k, in, k);
    }
}

void mul_mat_id(Memory& m, const Node& node) {
  const auto& p = std::get<MulMatIdParams>(node.params);
  const Shape stack = m.at(node.src[0]).shape;
  const std::int64_t k = stack[0], n = stack[1], used = m.at(node.src[2]).shape[0];
  const bool shared = m.at(node.src[1]).shape[1] == 1;
  const Range experts = range(p.expert_begin, p.expert_end, stack[2]);
  const double* w = m.read(node.src[0]);
  const double* x = m.read(node.src[1]);
  const double* ids = m.read(node.src[2]);
  double* y = m.write(node.dst[0]);
  for (std::int64_t pair = 0; pair < m.live(node.src[2]); ++pair) {
    double* out = y + pair * n;
    if (!experts.holds(ids[pair])) {
      std::fill(out, out + n, 0.0);
      continue;
    }
    const double* in = x + (shared ? pair / used : pair) * k;
    const double* matrix = w + static_cast<std::int64_t>(ids[pair]) * n * k;
    for (std::int64_t i = 0; i < n; ++i) out[i] = dot(matrix + i * k, in, k);
  }
}

void weighted_sum(Memory& m, const Node& node) {
  const auto& p = std::get<WeightedSumParams>(node.params);
  const Shape shape = m.at(node.src[0]).shape;
  const std::int64_t n = shape[0], used = shape[1];
  const int end = p.expert_end == 0 ? INT32_MAX : p.expert_end;
  const double* x = m.read(node.src[0]);
  const double* ids = m.read(node.src[1]);
  const double* weights = node.src.size() > 2 ? m.read(node.src[2]) : nullptr;
  double* y = m.write(node.dst[0]);
  for (std::int64_t t = 0; t < m.live(node.src[1]) / used; ++t) {
    std::fill(y + t * n, y + (t + 1) * n, 0.0);
    for (std::int64_t j = 0; j < used; ++j) {
      const std::int64_t pair = t * used + j;
      if (!Range{p.expert_begin, end}.holds(ids[pair])) continue;
      const double weight = weights == nullptr ? 1.0 : weights[pair];
      for (std::int64_t i = 0; i < n; ++i) y[t * n + i] += weight * x[pair * n + i];
    }
  }
}

}  // namespace ggml::reference
