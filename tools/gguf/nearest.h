#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gguf_tool {

/// The first candidate that begins with `word`, else the one with the smallest edit distance, the first of equals;
/// empty without candidates.
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string> candidates);

/// `; did you mean "x"?`; empty when no candidate is near enough to be what was meant.
[[nodiscard]] std::string suggestion(std::string_view word, std::span<const std::string> candidates);

}  // namespace gguf_tool
