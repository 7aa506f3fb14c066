#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llama {

/// What an error code of PCRE2 means: "missing closing parenthesis".
[[nodiscard]] std::string regex_message(int code);
/// What is wrong with a pattern that does not compile: "pattern "(a", offset 2: missing closing parenthesis". Of a long
/// pattern only the beginning is shown.
[[nodiscard]] std::string regex_fault(std::string_view pattern, std::size_t offset, int code);

}  // namespace llama
