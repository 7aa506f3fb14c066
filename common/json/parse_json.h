#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "ggml/error.h"

namespace common {

/// What a request or an option may nest; far below what the stack holds.
inline constexpr int kMaxJsonDepth = 512;

/// Memory of a tree beside the letters of its texts, which the text itself bounds: 16 bytes for every value, and
/// kJsonNodeBytes more for every list, object, text and key. Holds 12 million token ids, more than any model's context.
inline constexpr std::size_t kMaxJsonTreeBytes = 192u << 20;
inline constexpr std::size_t kJsonNodeBytes = 64;

/// The value of a JSON text, in linear time; of keys that are repeated the last value counts. Throws
/// Error(invalid_argument) "SUBJECT not valid JSON: line 1, column 2 (byte 2 of 9): a key in double quotes was
/// expected, got 'b'" with `hint`; a text that nests deeper than kMaxJsonDepth is refused before it costs stack, one
/// whose tree would pass kMaxJsonTreeBytes before it costs that memory. `subject` says what the text
/// is: "the body is".
[[nodiscard]] nlohmann::ordered_json parse_json(std::string_view text, std::string_view subject,
                                                std::string_view hint = {});

/// The same without a message: nothing for a text that is not JSON, nests too deep or is too large.
[[nodiscard]] std::optional<nlohmann::ordered_json> try_parse_json(std::string_view text);

/// Makes `value` null. The library's destructor moves all children into a list of their own first, and so ends the
/// process when memory is short; this needs none. Recurses per level: at most kMaxJsonDepth in what parse_json() gave.
void release_json(nlohmann::ordered_json& value) noexcept;

}  // namespace common
