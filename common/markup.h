#pragma once

#include <string>
#include <string_view>

namespace common {

/// `text` as HTML or XML, for the content of an element or an attribute's value. `quote` and `apostrophe`: how these
/// two are written; languages and formats differ.
[[nodiscard]] inline std::string escape_markup(std::string_view text, std::string_view quote = "&quot;",
                                               std::string_view apostrophe = "'") {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += quote;
        break;
      case '\'':
        out += apostrophe;
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace common
