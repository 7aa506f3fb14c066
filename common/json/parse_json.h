#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "ggml/error.h"

namespace common {

/// What a request or an option may nest; far below what the stack holds.
inline constexpr int kMaxJsonDepth = 512;

/// The value of a JSON text. Throws Error(invalid_argument) "SUBJECT not valid JSON: line 1, column 2 (byte 2 of 9): a
/// key in double quotes was expected, got 'b'" with `hint`; a text that nests deeper than kMaxJsonDepth is refused
/// before it costs stack. `subject` says what the text is: "the body is".
[[nodiscard]] nlohmann::ordered_json parse_json(std::string_view text, std::string_view subject,
                                                std::string_view hint = {});

}  // namespace common
