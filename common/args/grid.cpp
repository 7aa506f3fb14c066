#include "common/args/grid.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace common::grid {
namespace {

constexpr int kMaxValues = 100000;  // of one range: a typing error must not fill the memory

std::optional<int> take_int(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

struct Range {
  std::int64_t first = 0, last = 0, step = 1;
  bool multiplies = false;
};

/// Null when all is well, else what is wrong.
const char* parse_range(std::string_view rest, Range& range) {
  const std::optional<int> first = take_int(rest);
  if (!first) return "is not an integer";
  range.first = range.last = *first;
  if (rest.empty()) return nullptr;
  if (rest[0] != '-') return "is neither an integer nor a range";
  rest.remove_prefix(1);
  const std::optional<int> last = take_int(rest);
  if (!last) return "has no end";
  if (*last < *first) return "ends below its beginning";
  range.last = *last;
  if (rest.empty()) return nullptr;
  if (rest[0] != '+' && rest[0] != '*') return "has a step that begins with neither + nor *";
  range.multiplies = rest[0] == '*';
  rest.remove_prefix(1);
  const std::optional<int> step = take_int(rest);
  if (!step || !rest.empty()) return "has a step that is no integer";
  range.step = *step;
  return nullptr;
}

const char* add_range(const Range& range, std::vector<int>& values) {
  int count = 0;
  for (std::int64_t value = range.first; value <= range.last;) {
    if (++count > kMaxValues) return "has too many values";
    values.push_back(static_cast<int>(value));
    if (range.first == range.last) break;
    const std::int64_t next = range.multiplies ? value * range.step : value + range.step;
    if (next <= value) return "has a step that does not grow the value";
    value = next;
  }
  return nullptr;
}

}  // namespace

std::vector<int> parse_int_list(std::string_view text, std::string& why) {
  std::vector<int> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    Range range;
    const char* wrong = parse_range(item, range);
    if (wrong == nullptr) wrong = add_range(range, values);
    if (wrong != nullptr) {
      why = "\"" + std::string(item) + "\" " + wrong;
      return {};
    }
    begin = end + 1;
  }
  return values;
}

std::string_view load_mode_name(LoadMode mode) {
  switch (mode) {
    case LoadMode::none:
      return "none";
    case LoadMode::mmap:
      return "mmap";
    case LoadMode::mlock:
      return "mlock";
    case LoadMode::mmap_mlock:
      return "mmap+mlock";
    case LoadMode::direct_io:
      break;
  }
  return "dio";
}

}  // namespace common::grid
