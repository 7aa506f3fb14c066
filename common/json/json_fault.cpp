#include "common/json/json_fault.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "ggml/log.h"

namespace common {
namespace {

using ggml::strf;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/// Bytes of the UTF-8 character at the front; 0 when none stands there.
std::size_t utf8_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool in_range = !(lead == 0xE0 && byte(1) < 0xA0) && !(lead == 0xED && byte(1) > 0x9F);
    return in_range && follows(1) && follows(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool in_range = !(lead == 0xF0 && byte(1) < 0x90) && !(lead == 0xF4 && byte(1) > 0x8F);
    return in_range && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

class Checker {
 public:
  enum class Values : std::uint8_t { representable, any };
  Checker(std::string_view text, int max_depth, Values values) : text_(text), max_depth_(max_depth), values_(values) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

  std::optional<JsonFault> run() {
    if (check()) return std::nullopt;
    place_of(fault_.offset);
    return fault_;
  }

 private:
  bool check() {
    do {
      if (!value()) return false;
      if (is_open_) continue;
      if (!behind_value()) return false;
    } while (!open_.empty());
    skip_space();
    return at_ == text_.size() || fail("something follows behind the JSON value: " + found());
  }

  bool fail(std::string what) {
    fault_.offset = at_;
    fault_.is_end_missing = at_ >= text_.size();
    fault_.what = std::move(what);
    return false;
  }

  /// What stands here, for a message.
  [[nodiscard]] std::string found() const {
    if (at_ >= text_.size()) return "the end of the text";
    const auto byte = static_cast<unsigned char>(text_[at_]);
    const std::size_t size = utf8_size(text_.substr(at_));
    if (byte < 0x20 || byte == 0x7F || size == 0) return strf("the byte 0x%02X", byte);
    if (!is_letter(text_[at_])) return "'" + std::string(text_.substr(at_, size)) + "'";
    std::size_t end = at_;
    constexpr std::size_t kLongestWord = 20;
    while (end < text_.size() && end < at_ + kLongestWord && (is_letter(text_[end]) || is_digit(text_[end]))) ++end;
    return "'" + std::string(text_.substr(at_, end - at_)) + "'";
  }
  bool expected(const std::string& what) { return fail(what + " was expected, got " + found()); }

  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool skip(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }

  /// One value; of an array or object only its beginning, up to its first value (is_open_), or all of an empty one.
  bool value() {
    is_open_ = false;
    skip_space();
    const char c = peek();
    if (c == '{' || c == '[') return begin(c);
    if (c == '"') return string();
    if (c == '-' || is_digit(c)) return number();
    for (const std::string_view word : {"true", "false", "null"}) {
      const bool ends = at_ + word.size() >= text_.size() || !is_letter(text_[at_ + word.size()]);
      if (!text_.substr(at_).starts_with(word) || !ends) continue;
      at_ += word.size();
      return true;
    }
    return no_value(c);
  }

  bool no_value(char c) {
    if (c == '\'') return fail("texts are written in double quotes, got a single one");
    if (c == '/' || c == '#') return fail("JSON has no comments, got " + found());
    if ((c == '}' || c == ']') && is_behind_comma_) return fail("a comma stands before the closing " + found());
    if (is_letter(c)) return fail(found() + " is no JSON value: the words are true, false and null");
    return expected("a value");
  }

  bool begin(char c) {
    ++at_;
    open_.push_back(c);
    if (static_cast<int>(open_.size()) > max_depth_) {
      --at_;
      fault_.is_too_deep = true;
      return fail(strf("arrays and objects nest deeper than %d levels", max_depth_));
    }
    is_behind_comma_ = false;
    skip_space();
    if (skip(c == '{' ? '}' : ']')) {
      open_.pop_back();
      return true;
    }
    is_open_ = true;
    return c == '[' || key();
  }

  bool key() {
    skip_space();
    if (peek() != '"') {
      if (peek() == '\'') return fail("keys are written in double quotes, got a single one");
      if (peek() == '}' && is_behind_comma_) return fail("a comma stands before the closing '}'");
      return expected("a key in double quotes");
    }
    if (!string()) return false;
    skip_space();
    return skip(':') || expected("a ':' behind the key");
  }

  /// Closing brackets, then a comma with what leads to the next value.
  bool behind_value() {
    while (!open_.empty()) {
      const bool is_object = open_.back() == '{';
      skip_space();
      if (skip(is_object ? '}' : ']')) {
        open_.pop_back();
        continue;
      }
      if (!skip(',')) return expected(is_object ? "a ',' or '}'" : "a ',' or ']'");
      is_behind_comma_ = true;
      return !is_object || key();
    }
    return true;
  }

  bool string() {
    const std::size_t begin = at_++;
    while (at_ < text_.size()) {
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte == '"') {
        ++at_;
        return true;
      }
      if (byte < 0x20)
        return fail(strf("the byte 0x%02X in a text must be written as %s", byte,
                         byte == '\n'   ? "\\n"
                         : byte == '\t' ? "\\t"
                                        : strf("\\u%04x", byte).c_str()));
      if (byte == '\\') {
        if (!escape()) return false;
        continue;
      }
      const std::size_t size = byte < 0x80 ? 1 : utf8_size(text_.substr(at_));
      if (size == 0) return fail(strf("the byte 0x%02X is not part of valid UTF-8", byte));
      at_ += size;
    }
    return fail("a text that begins in " + position_text(begin) + " is never closed");
  }

  bool escape() {
    const std::size_t begin = at_++;
    const char c = peek();
    if (c != 'u') {
      if (at_ >= text_.size()) return fail("the text ends within an escape");
      constexpr std::string_view kKnown = "\"\\/bfnrt";
      if (kKnown.find(c) == std::string_view::npos) {
        at_ = begin;
        return fail("there is no escape \\" + std::string(1, c >= 0x20 && c < 0x7F ? c : '?') +
                    "; a backslash itself is written \\\\");
      }
      ++at_;
      return true;
    }
    unsigned code = 0;
    if (!unicode(code)) return false;
    const std::size_t behind = at_;
    if (code >= 0xD800 && code <= 0xDBFF && text_.substr(at_).starts_with("\\u")) {
      ++at_;
      unsigned low = 0;
      if (!unicode(low)) return false;
      if (low >= 0xDC00 && low <= 0xDFFF) return true;
    } else if (code < 0xD800 || code > 0xDFFF) {
      return true;
    }
    at_ = values_ == Values::any ? behind : begin;
    return values_ == Values::any || fail("half a surrogate pair is no character");
  }

  /// The u and four hexadecimal digits.
  bool unicode(unsigned& code) {
    ++at_;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      if (!is_hex(c)) return expected("four hexadecimal digits behind \\u: one");
      code = code << 4 | static_cast<unsigned>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return true;
  }

  bool number() {
    const std::size_t begin = at_;
    (void)skip('-');
    if (!is_digit(peek())) return expected("a digit behind the '-'");
    if (skip('0') && is_digit(peek())) return fail("a number may not begin with 0");
    while (is_digit(peek())) ++at_;
    bool may_be_large = at_ - begin > 300;
    if (skip('.')) {
      if (!is_digit(peek())) return expected("a digit behind the '.'");
      while (is_digit(peek())) ++at_;
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      may_be_large = true;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!is_digit(peek())) return expected("a digit of the exponent");
      while (is_digit(peek())) ++at_;
    }
    if (!may_be_large || values_ == Values::any) return true;
    const std::string spelled(text_.substr(begin, at_ - begin));
    if (std::isfinite(std::strtod(spelled.c_str(), nullptr))) return true;
    at_ = begin;
    return fail("this number is too large; 1.7e308 is the largest");
  }

  [[nodiscard]] std::string position_text(std::size_t offset) {
    place_of(offset);
    return strf("line %d, column %d", fault_.line, fault_.column);
  }
  void place_of(std::size_t offset) {
    fault_.line = 1;
    std::size_t begin = 0;
    for (std::size_t end; (end = text_.find('\n', begin)) < offset; begin = end + 1) ++fault_.line;
    fault_.column = 1;
    if (begin == 0 && text_.starts_with("\xEF\xBB\xBF")) begin = 3;
    for (std::size_t i = begin; i < offset; ++i)
      if ((static_cast<unsigned char>(text_[i]) & 0xC0u) != 0x80u) ++fault_.column;
  }

  std::string_view text_;
  int max_depth_;
  Values values_;
  std::size_t at_ = 0;
  std::vector<char> open_;  // brackets
  bool is_open_ = false;
  bool is_behind_comma_ = false;
  JsonFault fault_;
};

}  // namespace

std::optional<std::size_t> invalid_text_at(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = text[i] == '\0' ? 0 : utf8_size(text.substr(i));
    if (size == 0) return i;
    i += size;
  }
  return std::nullopt;
}

std::optional<JsonFault> find_json_fault(std::string_view text, int max_depth) {
  return Checker(text, max_depth, Checker::Values::representable).run();
}

bool has_json_form(std::string_view text) {
  return !Checker(text, std::numeric_limits<int>::max(), Checker::Values::any).run();
}

}  // namespace common
