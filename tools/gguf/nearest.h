#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gguf_tool {

/// The candidate with the smallest edit distance to `word`, the first of equals; empty without candidates.
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace gguf_tool
