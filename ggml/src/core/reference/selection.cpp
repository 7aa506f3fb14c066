#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "ggml/sampler_chain.h"
#include "ops.h"

namespace ggml::reference {

namespace {

constexpr double kSmallestSum = 6.103515625e-5;

// Indices of the k largest, ties to the lower index.
std::vector<std::int64_t> best(const std::vector<double>& x, std::int64_t k) {
  std::vector<std::int64_t> order(x.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return x[static_cast<std::size_t>(a)] > x[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

// -inf everywhere outside the best groups, which are scored by the sum of their two largest values.
void limit_to_groups(std::vector<double>& x, const TopKParams& p) {
  const std::size_t size = x.size() / static_cast<std::size_t>(p.n_groups);
  std::vector<double> scores;
  for (std::size_t first = 0; first < x.size(); first += size) {
    std::vector<double> group(x.begin() + static_cast<std::ptrdiff_t>(first),
                              x.begin() + static_cast<std::ptrdiff_t>(first + size));
    std::sort(group.rbegin(), group.rend());
    scores.push_back(group[0] + (size > 1 ? group[1] : 0.0));
  }
  std::vector<bool> kept(scores.size(), false);
  for (std::int64_t group : best(scores, p.n_groups_used)) kept[static_cast<std::size_t>(group)] = true;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!kept[i / size]) x[i] = -std::numeric_limits<double>::infinity();
}

}  // namespace

void top_k(Memory& m, const Node& node) {
  const auto& p = std::get<TopKParams>(node.params);
  const std::int64_t n = m.at(node.src[0]).shape[0];
  const double* x = m.read(node.src[0]);
  double* ids = m.write(node.dst[0]);
  for (std::int64_t t = 0; t < m.live(node.src[0]) / n; ++t) {
    std::vector<double> row(x + t * n, x + (t + 1) * n);
    if (p.n_groups > 1) limit_to_groups(row, p);
    const std::vector<std::int64_t> order = best(row, p.k);
    for (std::int64_t rank = 0; rank < p.k; ++rank) {
      const std::int64_t id = order[static_cast<std::size_t>(rank)];
      const double least = static_cast<double>(p.keep_ratio) * row[static_cast<std::size_t>(order.front())];
      const bool kept = p.keep_ratio <= 0 || rank < p.min_kept || row[static_cast<std::size_t>(id)] >= least;
      *ids++ = kept ? static_cast<double>(id) : -1.0;
    }
  }
}

void gather(Memory& m, const Node& node) {
  const auto& p = std::get<GatherParams>(node.params);
  const Tensor& x = m.at(node.src[0]);
  const std::int64_t n = x.shape[0], k = m.at(node.src[1]).shape[0];
  const std::int64_t stride = x.rows == Rows::fixed && x.shape[1] == 1 ? 0 : n;
  const double* values = m.read(node.src[0]);
  const double* ids = m.read(node.src[1]);
  double* y = m.write(node.dst[0]);
  for (std::int64_t t = 0; t < m.live(node.src[1]) / k; ++t) {
    double* out = y + t * k;
    const double outside = p.softmax ? -std::numeric_limits<double>::infinity() : 0.0;
    for (std::int64_t j = 0; j < k; ++j) {
      const double id = ids[t * k + j];
      out[j] = id >= 0 && id < static_cast<double>(n) ? values[t * stride + static_cast<std::int64_t>(id)] : outside;
    }
    if (p.softmax) {
      const double max = *std::max_element(out, out + k);
      double sum = 0;
      for (std::int64_t j = 0; j < k; ++j) sum += out[j] = std::exp(out[j] - max);
      for (std::int64_t j = 0; j < k; ++j) out[j] /= sum;
    }
    const double divisor = p.normalise ? std::max(std::accumulate(out, out + k, 0.0), kSmallestSum) : 1.0;
    for (std::int64_t j = 0; j < k; ++j) out[j] = out[j] / divisor * p.scale;
  }
}

void pick(Memory& m, const Node& node) {
  const std::int64_t n_vocab = m.at(node.src[0]).shape[0];
  const std::int64_t n_logits = m.live(node.src[0]) / n_vocab;
  constexpr std::int64_t row_words = sizeof(SampleRow) / 4, result_words = sizeof(SampleResult) / 4;
  const std::vector<float> logits = m.to_float(node.src[0]);
  const auto* rows = reinterpret_cast<const SampleRow*>(m.raw(node.src[1]));
  const auto* adjust = reinterpret_cast<const SampleAdjust*>(m.raw(node.src[2]));
  const auto* masks = reinterpret_cast<const std::uint32_t*>(m.raw(node.src[3]));
  const auto mask_words = static_cast<std::size_t>(m.at(node.src[3]).shape[0]);
  std::vector<std::byte> scratch(sampler_scratch_bytes(static_cast<std::size_t>(n_vocab)));
  double* out = m.write(node.dst[0]);
  for (std::int64_t r = 0; r < m.live(node.src[1]) / row_words; ++r, out += result_words) {
    const SampleRow& row = rows[r];
    SampleResult result{};
    result.token = -1;
    if (row.logits_row >= 0 && row.logits_row < n_logits) {
      SamplerInput in;
      in.logits = {logits.data() + row.logits_row * n_vocab, static_cast<std::size_t>(n_vocab)};
      if (row.adjust_end > row.adjust_begin)
        in.adjust = {adjust + row.adjust_begin, static_cast<std::size_t>(row.adjust_end - row.adjust_begin)};
      if (row.mask_row >= 0) in.allowed = {masks + static_cast<std::size_t>(row.mask_row) * mask_words, mask_words};
      run_sampler_chain(row, in, scratch, result);
    }
    std::int32_t words[result_words];
    std::memcpy(words, &result, sizeof(result));
    std::copy(std::begin(words), std::end(words), out);
  }
}

}  // namespace ggml::reference
