#include "placement/nearest_names.h"

#include <algorithm>
#include <numeric>

namespace llama {

namespace {

/// Letters to change, add or drop to turn one text into a part of the other: patterns are searched, not matched whole,
/// so what stands before and behind the part is free.
std::size_t distance_to_part(std::string_view text, std::string_view name) {
  std::vector<std::size_t> row(name.size() + 1, 0), next(name.size() + 1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    next[0] = i + 1;
    for (std::size_t j = 0; j < name.size(); ++j)
      next[j + 1] = std::min({row[j + 1] + 1, next[j] + 1, row[j] + (text[i] == name[j] ? 0 : 1)});
    std::swap(row, next);
  }
  return *std::min_element(row.begin(), row.end());
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view text, const std::vector<std::string_view>& names,
                                       std::size_t count) {
  std::vector<std::size_t> distances, order(names.size());
  for (const std::string_view name : names) distances.push_back(distance_to_part(text, name));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return distances[a] < distances[b]; });
  std::vector<std::string> nearest;
  for (std::size_t i = 0; i < std::min(count, order.size()); ++i) nearest.emplace_back(names[order[i]]);
  return nearest;
}

}  // namespace llama
