#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/args/option.h"

namespace common {

/// One item of -ot: a regular expression that is searched in tensor names, and the name of a buffer type.
using TensorRule = std::pair<std::string, std::string>;

/// The rules of one -ot value, in order. Splits at every comma; in an item the first `=` separates.
///
/// Throws ggml::Error for an item without `=` (saying so when a comma inside a pattern cut it off), a pattern that does
/// not compile (position and reason), and a buffer type that does not exist (listing those that do).
[[nodiscard]] std::vector<TensorRule> parse_tensor_rules(const Argument& argument);

/// Names of the buffer types that weights can be placed in, sorted.
[[nodiscard]] std::vector<std::string> buffer_types();

}  // namespace common
