#pragma once

#include <string>

#include "common/args/settings.h"

namespace common {

/// The grammar of --grammar, --grammar-file, --json-schema or --json-schema-file as GBNF; empty when none was given.
/// Throws Error(invalid_argument or exceeds_limit) naming the option, and the place of what is wrong.
[[nodiscard]] std::string grammar_text(const SamplingSettings& settings);

}  // namespace common
