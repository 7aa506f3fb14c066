#pragma once

#include <span>
#include <string>

namespace common::grammar {

class GrammarBuilder;

/// How a chat format that is not JSON spells values of JSON's shape; numbers, true, false and null are spelled as in
/// JSON, and nothing stands between the tokens. What is given and returned are GBNF expressions. Immutable.
class Notation {
 public:
  virtual ~Notation() = default;

  /// A part of the names of its rules, different for each notation: letters, digits and '-'.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Any text that a string may hold.
  [[nodiscard]] virtual std::string text(GrammarBuilder& builder) const = 0;
  /// The string that holds `text`.
  [[nodiscard]] virtual std::string string(const std::string& text) const = 0;
  /// `value` as the member of an object under `key`, a plain text; as an item of a list.
  [[nodiscard]] virtual std::string member(const std::string& key, const std::string& value) const = 0;
  [[nodiscard]] virtual std::string item(const std::string& value) const { return value; }
  /// Whether a member may be called so.
  [[nodiscard]] virtual bool carries(const std::string& /*key*/) const { return true; }
  /// `value` as a member under any key that is none of `taken`, nor the beginning of one; "" where no grammar can write
  /// that: then objects have no other members, and one without known members is a string.
  [[nodiscard]] virtual std::string other_member(GrammarBuilder& builder, std::span<const std::string> taken,
                                                 const std::string& value) const = 0;
  struct Frame {
    std::string open, separator, close;
  };
  [[nodiscard]] virtual Frame object() const = 0;
  [[nodiscard]] virtual Frame array() const = 0;
};

}  // namespace common::grammar
