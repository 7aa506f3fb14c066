#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/args/args.h"
#include "common/args/option.h"

namespace common {

/// One use of a row, resolved from how it was typed.
struct Occurrence {
  const Option* row = nullptr;
  Argument argument;
};

/// The command line, resolved against the table: spellings looked up, values assigned by each row's arity.
struct Rewritten {
  std::vector<Occurrence> occurrences;
  std::optional<std::string_view> printing;  // --help, --version or --completion-bash, the first one seen
};

/// Throws ggml::Error for an unknown argument (with the nearest spelling as hint), a missing value. Stops at the first
/// option that only prints.
[[nodiscard]] Rewritten rewrite_arguments(Tool tool, int argc, const char* const* argv);

/// The rows that the environment sets for this tool, in the order of the table.
[[nodiscard]] std::vector<Occurrence> environment_occurrences(Tool tool, EnvironmentLookup lookup);

/// A line for each variable that looks like an option's and is none, with the one that was probably meant.
[[nodiscard]] std::vector<std::string> unknown_variables(EnvironmentNames names);

}  // namespace common
