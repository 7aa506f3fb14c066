#include "nearest.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace gguf_tool {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0U : 1U);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : candidates) {
    // What the word begins beats what it resembles: "q4_k" means "q4_k_m", not "q4_0".
    const std::size_t distance = candidate.starts_with(word) ? 0 : edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates) {
  const std::string best = nearest(word, candidates);
  const bool begins = !word.empty() && best.starts_with(word);
  const std::size_t allowed = std::max<std::size_t>(1, word.size() / 3);
  if (best.empty() || (!begins && edit_distance(word, best) > allowed)) return {};
  return "; did you mean \"" + best + "\"?";
}

}  // namespace gguf_tool
