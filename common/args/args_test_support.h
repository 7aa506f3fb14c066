#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/args/args.h"
#include "ggml/error.h"

namespace common::testing {

/// The environment that parse() sees in these tests.
inline std::map<std::string, std::string>& fake_environment() {
  static std::map<std::string, std::string> variables;
  return variables;
}

inline std::optional<std::string> fake_lookup(const std::string& name) {
  const auto found = fake_environment().find(name);
  return found == fake_environment().end() ? std::nullopt : std::optional<std::string>(found->second);
}

inline std::vector<std::string> fake_names(std::string_view prefix) {
  std::vector<std::string> names;
  for (const auto& [name, value] : fake_environment())
    if (name.compare(0, prefix.size(), prefix) == 0) names.push_back(name);
  return names;
}

inline Parsed parse_line(Tool tool, const std::vector<std::string>& arguments, bool require_model = false) {
  std::vector<const char*> argv{"program"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  ParseOptions options;
  options.environment = fake_lookup;
  options.environment_names = fake_names;
  options.require_model = require_model;
  return parse(tool, static_cast<int>(argv.size()), argv.data(), options);
}

inline Settings settings_of(Tool tool, const std::vector<std::string>& arguments) {
  return parse_line(tool, arguments).settings;
}

/// The Error that a line causes; code internal and empty texts when it causes none.
inline ggml::Error error_of(Tool tool, const std::vector<std::string>& arguments, bool require_model = false) {
  try {
    (void)parse_line(tool, arguments, require_model);
  } catch (const ggml::Error& error) {
    return error;
  }
  return {ggml::ErrorCode::internal, ""};
}

/// All notes, one a line.
inline std::string notes_of(const Parsed& parsed) {
  std::string out;
  for (const auto& [level, text] : parsed.notes)
    out += (level == ggml::LogLevel::warn ? "warning: " : "info: ") + text + "\n";
  return out;
}

}  // namespace common::testing
