#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "ggml/error.h"

namespace common {

/// What a request or an option may nest; far below what the stack holds.
inline constexpr int kMaxJsonDepth = 512;

/// The value of a JSON text. Throws Error(invalid_argument) "SUBJECT not valid JSON: line 1, column 2 (byte 2 of 9): a
/// key in double quotes was expected, got 'b'" with `hint`; a text that nests deeper than kMaxJsonDepth is refused
/// before it costs stack. `subject` says what the text is: "the body is". Takes time in proportion to the text.
[[nodiscard]] nlohmann::ordered_json parse_json(std::string_view text, std::string_view subject,
                                                std::string_view hint = {});

/// The same without a message: nothing for a text that is not JSON or nests too deep.
[[nodiscard]] std::optional<nlohmann::ordered_json> try_parse_json(std::string_view text);

}  // namespace common
