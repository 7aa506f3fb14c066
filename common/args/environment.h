#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace common {

/// The value of an environment variable; nothing when it is not set. The only way from the process's environment into
/// the program: everything that reads a variable is listed by docs/parameters.md.
[[nodiscard]] std::optional<std::string> environment(const std::string& name);

/// The names of all variables that begin with `prefix`, sorted.
[[nodiscard]] std::vector<std::string> environment_names(std::string_view prefix);

/// Where parse() looks variables up; tests pass their own.
using EnvironmentLookup = std::optional<std::string> (*)(const std::string& name);
using EnvironmentNames = std::vector<std::string> (*)(std::string_view prefix);

}  // namespace common
