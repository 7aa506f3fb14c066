#pragma once

#include <optional>
#include <string>

namespace common {

/// The value of an environment variable; nothing when it is not set. The only way from the process's environment into
/// the program: everything that reads a variable is listed by docs/parameters.md.
[[nodiscard]] std::optional<std::string> environment(const std::string& name);

/// Where parse() looks variables up; tests pass their own.
using EnvironmentLookup = std::optional<std::string> (*)(const std::string& name);

}  // namespace common
