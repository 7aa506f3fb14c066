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
/// Throws ggml::Error for an item without `=` (saying so when a comma inside a pattern cut it off) and a pattern that
/// does not compile (position and reason). Whether the buffer type exists is seen when the devices are known.
[[nodiscard]] std::vector<TensorRule> parse_tensor_rules(const Argument& argument);

}  // namespace common
