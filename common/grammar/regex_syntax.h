#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace common::grammar {

/// The first thing that is wrong with a regular expression.
struct RegexFault {
  std::size_t offset = 0;  // in bytes
  std::string what;        // "this group is never closed"
};

/// What no dialect of regular expressions can read: brackets that do not match, repetitions of nothing or of a
/// repetition, ranges that end before they begin, an escape that is cut off. What only some dialects know (groups with
/// options, named classes, possessive repetitions) is no fault. Linear, without recursion. Pre: valid UTF-8.
[[nodiscard]] std::optional<RegexFault> find_regex_fault(std::string_view pattern);

}  // namespace common::grammar
