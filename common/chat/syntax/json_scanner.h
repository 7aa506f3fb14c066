#pragma once

#include <string>
#include <string_view>

namespace common::chat::syntax {

/// Finds the end of a JSON value as its text arrives. It follows strings and brackets and nothing else, so what a model
/// writes a little wrong inside them still ends where it meant it to.
class JsonScanner {
 public:
  enum class Verdict : unsigned char {
    part,  // belongs to the value
    last,  // belongs to it and ends it
    past,  // the value ended before
    bad    // a bracket that does not fit, or too many
  };
  Verdict push(char c);
  [[nodiscard]] bool in_string() const { return in_string_; }

 private:
  Verdict close(char open);

  std::string open_;  // brackets
  bool begun_ = false, scalar_ = false, in_string_ = false, escaped_ = false;
};

/// Appends one character of a JSON text; inside strings a control character, which models forget to escape, becomes an
/// escape.
void append_json(char c, bool in_string, std::string& out);
/// Appends text as it stands inside a JSON string.
void append_escaped(std::string_view text, std::string& out);

}  // namespace common::chat::syntax
