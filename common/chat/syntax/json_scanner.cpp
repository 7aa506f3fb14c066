#include "common/chat/syntax/json_scanner.h"

#include <cstdio>

#include "common/chat/syntax/element.h"

namespace common::chat::syntax {

namespace {
constexpr std::size_t kMaxDepth = 1000;
}

JsonScanner::Verdict JsonScanner::close(char open) {
  if (open_.empty() || open_.back() != open) return scalar_ ? Verdict::past : Verdict::bad;
  open_.pop_back();
  return open_.empty() ? Verdict::last : Verdict::part;
}

JsonScanner::Verdict JsonScanner::push(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (open_.empty()) return Verdict::last;
    }
    return Verdict::part;
  }
  const bool first = !begun_;
  begun_ = true;
  switch (c) {
    case '"':
      if (scalar_) return Verdict::past;
      in_string_ = true;
      return Verdict::part;
    case '{':
    case '[':
      if (scalar_) return Verdict::past;
      if (open_.size() >= kMaxDepth) return Verdict::bad;
      open_ += c;
      return Verdict::part;
    case '}':
      return first ? Verdict::bad : close('{');
    case ']':
      return first ? Verdict::bad : close('[');
    default:
      break;
  }
  if (!open_.empty()) return Verdict::part;
  if (first && c != ',' && c != ':') scalar_ = true;
  if (!scalar_) return Verdict::bad;
  return c == ',' || is_space(c) ? Verdict::past : Verdict::part;
}

void append_json(char c, bool in_string, std::string& out) {
  if (in_string && static_cast<unsigned char>(c) < 0x20) {
    append_escaped({&c, 1}, out);
  } else {
    out += c;
  }
}

void append_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char code[8];
          std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
          out += code;
        } else {
          out += c;
        }
    }
  }
}

}  // namespace common::chat::syntax
