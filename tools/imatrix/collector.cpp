#include "collector.h"

#include <cmath>

#include "ggml/error.h"
#include "ggml/quoted.h"

namespace imatrix {

bool Collector::wants(const std::string& name) const {
  // Names of weights that were made from others at load end otherwise.
  return (name.starts_with("blk.") && name.ends_with(".weight")) ||
         (options_.output_too && (name == "output.weight" || name == "token_embd.weight"));
}

void Collector::on_slot(const ggml::Weight& weight, std::span<const float> rows,
                        std::span<const std::int32_t> experts) {
  if (!wants(weight.name)) return;
  Sums& sums = sums_[weight.name];
  const auto k = static_cast<std::size_t>(weight.shape[0]);
  const auto matrices = static_cast<std::size_t>(weight.shape[2]);
  if (sums.squares.empty()) {
    sums.columns = weight.shape[0];
    sums.squares.resize(k * matrices);
    sums.counts.resize(matrices);
  }
  const std::size_t n = rows.size() / k;
  for (std::size_t row = 0; row < n; ++row) {
    const std::size_t matrix = experts.empty() ? 0 : static_cast<std::size_t>(experts[row]);
    double* squares = sums.squares.data() + matrix * k;
    const float* x = rows.data() + row * k;
    for (std::size_t i = 0; i < k; ++i) squares[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sums.counts[matrix] += 1;
    // One NaN or infinity spreads through the sum of its column.
    double all = 0;
    for (std::size_t i = 0; i < k; ++i) all += static_cast<double>(std::fabs(x[i]));
    if (!std::isfinite(all)) {
      throw ggml::Error(ggml::ErrorCode::invalid_file,
                        "the input of " + ggml::gguf::quoted(weight.name) + " is not finite",
                        "the model is broken: load it with --check-tensors");
    }
  }
}

void Collector::move_to(llama::ImportanceMatrix& matrix) {
  llama::ImportanceMatrix collected;
  for (const auto& [name, sums] : sums_) {
    llama::ImportanceMatrix::Entry entry;
    entry.columns = sums.columns;
    entry.square_sums.assign(sums.squares.begin(), sums.squares.end());
    entry.counts.assign(sums.counts.begin(), sums.counts.end());
    collected.entries.emplace(name, std::move(entry));
  }
  matrix.merge(collected);
  sums_.clear();
}

}  // namespace imatrix
