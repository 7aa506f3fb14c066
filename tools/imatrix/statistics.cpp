#include "statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

namespace imatrix {
namespace {

constexpr float kActive = 1e-5F;

struct Statistics {
  double sum = 0, least = 0, greatest = 0, mean = 0, deviation = 0;
  double active = 0, entropy = 0, outliers = 0;
  std::size_t n = 0;
};

Statistics statistics_of(const std::vector<float>& values) {
  Statistics out;
  out.n = values.size();
  const auto n = static_cast<double>(out.n);
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  out.least = static_cast<double>(*least);
  out.greatest = static_cast<double>(*greatest);
  double squares = 0;
  for (const float value : values) {
    out.sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
    out.active += value > kActive ? 1 / n : 0;
  }
  out.mean = out.sum / n;
  out.deviation = std::sqrt(std::max(squares / n - out.mean * out.mean, 0.0));
  for (const float value : values) {
    const double p = out.sum > 0 ? static_cast<double>(value) / out.sum : 0;
    if (p > 0) out.entropy -= p * std::log2(p);
    if (static_cast<double>(value) > out.mean + out.deviation) out.outliers += 1 / n;
  }
  return out;
}

/// Cosine of the angle between two lists; nothing when their sizes differ.
std::optional<double> similarity(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::nullopt;
  double dot = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    aa += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    bb += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return aa > 0 && bb > 0 ? std::optional(dot / std::sqrt(aa * bb)) : std::nullopt;
}

/// "blk.3.x" for "blk.4.x"; empty for names without a layer before.
std::string in_layer_before(const std::string& name) {
  constexpr std::string_view kStem = "blk.";
  int layer = 0;
  if (!name.starts_with(kStem)) return {};
  const char* end = name.data() + name.size();
  const auto [stop, failure] = std::from_chars(name.data() + kStem.size(), end, layer);
  if (failure != std::errc() || layer == 0) return {};
  return std::string(kStem) + std::to_string(layer - 1) + std::string(stop, end);
}

}  // namespace

std::string statistics_table(const llama::ImportanceMatrix& matrix) {
  std::string out =
      fmt::format("{} weights, {} chunks of {} tokens\n", matrix.entries.size(), matrix.chunks, matrix.chunk_size);
  out += fmt::format("{:32} {:>12} {:>11} {:>11} {:>11} {:>11} {:>8} {:>7} {:>8} {:>8} {:>7} {:>7}\n", "Tensor",
                     "Sum(Act^2)", "Min", "Max", "Mean", "StdDev", "Active", "N", "Entropy", "E(norm)", "ZD", "CosSim");
  for (const auto& [name, entry] : matrix.entries) {
    const std::vector<float> values = llama::ImportanceMatrix::means(entry);
    const Statistics s = statistics_of(values);
    const double most = std::log2(static_cast<double>(s.n));
    std::string cosine = "-";
    if (const auto before = matrix.entries.find(in_layer_before(name)); before != matrix.entries.end()) {
      const auto cos = similarity(values, llama::ImportanceMatrix::means(before->second));
      if (cos) cosine = fmt::format("{:.4f}", *cos);
    }
    out += fmt::format(
        "{:32} {:12.4f} {:11.4g} {:11.4g} {:11.4g} {:11.4g} {:7.2f}% {:7} {:8.4f} {:7.2f}% {:6.2f}% {:>7}\n", name,
        s.sum, s.least, s.greatest, s.mean, s.deviation, 100 * s.active, s.n, s.entropy,
        most > 0 ? 100 * s.entropy / most : 100, 100 * s.outliers, cosine);
  }
  return out;
}

}  // namespace imatrix
