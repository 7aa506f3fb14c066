#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llama {

/// The `count` names that differ from `text` in the fewest letters, nearest first.
[[nodiscard]] std::vector<std::string> nearest_names(std::string_view text, const std::vector<std::string_view>& names,
                                                     std::size_t count);

}  // namespace llama
