#pragma once

#include <span>
#include <string_view>

namespace common::chat {

/// One chat format that --chat-template NAME selects. It is a small Jinja template of our own, so that formats with and
/// without Jinja share one engine.
struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;
  /// A model's template that contains all of these is taken to be this format when Jinja is off; up to three, empty
  /// ones do not count. Without any, the format is only found by name.
  std::string_view markers[3] = {};
  /// And none of this.
  std::string_view absent = {};
};

/// In the order in which they are tried on a template's text: the more particular first.
[[nodiscard]] std::span<const BuiltinTemplate> builtin_templates();
/// Null when there is none of that name.
[[nodiscard]] const BuiltinTemplate* find_builtin_template(std::string_view name);
/// The format whose markers the source of a template shows; null when there is none.
[[nodiscard]] const BuiltinTemplate* match_builtin_template(std::string_view source);

}  // namespace common::chat
