#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "ggml/error.h"

namespace llama {

/// A regular expression over tensor names, as -ot has them: ECMAScript's meaning where that has one, searched anywhere
/// in the name, case-sensitive. Immutable; thread-compatible.
class NamePattern {
 public:
  /// The pattern, or Error(invalid_argument) with the position (in bytes) and the reason.
  static ggml::Result<NamePattern> compile(const std::string& text);

  [[nodiscard]] const std::string& text() const { return text_; }
  /// Whether some part of the name matches. Throws Error(exceeds_limit) where that cannot be decided in a bounded
  /// number of steps.
  [[nodiscard]] bool found_in(std::string_view name) const;
  /// The pattern without its special characters: names to look for when it matches nothing.
  [[nodiscard]] std::string literal_part() const;

 private:
  struct Code;
  NamePattern(std::string text, std::shared_ptr<const Code> code);

  std::string text_;
  std::shared_ptr<const Code> code_;
};

}  // namespace llama
