#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sweep {

/// The words of a set of flags as it stands inside one argument: blanks separate them, '...' and "..." hold them
/// together. A backslash stands for itself, as patterns need it, except before a blank, a quote or another backslash;
/// inside '...' always. Throws Error(invalid_argument) for a quote that is not closed, saying where it opens.
[[nodiscard]] std::vector<std::string> split_words(std::string_view text);

}  // namespace sweep
