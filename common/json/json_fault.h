#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace common {

/// The first thing that is wrong with a JSON text.
struct JsonFault {
  std::size_t offset = 0;       // in bytes
  int line = 1, column = 1;     // both count from 1, columns in characters
  std::string what;             // "a ':' must follow the key, got '='"
  bool is_too_deep = false;     // arrays and objects nest deeper than allowed
  bool is_end_missing = false;  // the text ends too early
};

/// Nothing for a text that is JSON (RFC 8259; a byte order mark in front is allowed) and nests at most `max_depth`
/// levels. A number that no double can hold is a fault. Linear, without recursion.
[[nodiscard]] std::optional<JsonFault> find_json_fault(std::string_view text, int max_depth);

/// Whether a text has JSON's form, to whatever depth; numbers may be of any size, and halves of surrogate pairs stand
/// alone.
[[nodiscard]] bool has_json_form(std::string_view text);

/// Where a text stops being valid UTF-8 without NUL bytes; nothing for one that is.
[[nodiscard]] std::optional<std::size_t> invalid_text_at(std::string_view text);

}  // namespace common
