#include "common/chat/jinja/ordering.h"

#include <numeric>

#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/runtime.h"
#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
// A merge sort of positions: it never compares outside the range, even when the order is inconsistent (NaN), which
// std::stable_sort does not promise.
void merge_sort(Runtime& rt, const std::vector<Value>& keys, bool reverse, std::vector<std::size_t>& order) {
  const auto before = [&](std::size_t a, std::size_t b) {
    const int c = ::common::jinja::order(rt, keys[a], keys[b], "<");
    return reverse ? c > 0 : c < 0;
  };
  std::vector<std::size_t> merged(order.size());
  for (std::size_t width = 1; width < order.size(); width *= 2) {
    for (std::size_t first = 0; first < order.size(); first += 2 * width) {
      const std::size_t middle = std::min(first + width, order.size()),
                        last = std::min(first + 2 * width, order.size());
      std::size_t left = first, right = middle;
      for (std::size_t at = first; at < last; ++at) {
        const bool take_right = right < last && (left == middle || before(order[right], order[left]));
        merged[at] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
}
}  // namespace

void sort_values(Runtime& rt, std::vector<Value>& items, const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> positions(items.size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  merge_sort(rt, keys, reverse, positions);
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const std::size_t i : positions) sorted.push_back(items[i]);
  items = std::move(sorted);
}

Value fold_case(Runtime& rt, const Value& v) {
  const std::string* s = v.as_text();
  return s ? rt.text(to_lower(*s)) : v;
}

}  // namespace common::jinja
