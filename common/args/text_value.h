#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/args/option.h"

namespace common {

/// The whole text as a number; nothing for any other text, nor for what the type does not hold.
[[nodiscard]] std::optional<std::int64_t> as_integer(std::string_view text);
[[nodiscard]] std::optional<double> as_real(std::string_view text);
/// The bytes of a file that is to be a text. Throws the error that says what else it is.
[[nodiscard]] std::string read_text_file(const Argument& argument, const std::string& path);
/// Throws the error for a text that is not JSON, with the place; `what` is the text's name: "the schema".
void check_json(const Argument& argument, std::string_view text, std::string_view what);

}  // namespace common
