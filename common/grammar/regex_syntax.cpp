#include "common/grammar/regex_syntax.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace common::grammar {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// The value of a hexadecimal digit; nothing for another character.
std::optional<std::uint32_t> hex_value(char c) {
  if (is_digit(c)) return static_cast<std::uint32_t>(c - '0');
  const char lower = static_cast<char>(c | 0x20);
  if (lower < 'a' || lower > 'f') return std::nullopt;
  return static_cast<std::uint32_t>(lower - 'a' + 10);
}

/// Whether the number that `a` spells is above that of `b`, however long they are.
bool is_above(std::string_view a, std::string_view b) {
  const auto digits = [](std::string_view s) { return s.substr(std::min(s.find_first_not_of('0'), s.size())); };
  a = digits(a);
  b = digits(b);
  return a.size() != b.size() ? a.size() > b.size() : a > b;
}

class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  std::optional<RegexFault> run() {
    while (at_ < text_.size())
      if (!element()) return fault_;
    if (!open_.empty()) return RegexFault{open_.back(), "this group is never closed"};
    return std::nullopt;
  }

 private:
  /// A character of a class, if it is known which: an escape may mean several or, by dialect, another.
  using Code = std::optional<std::uint32_t>;

  bool fail(std::size_t offset, std::string what) {
    fault_ = {offset, std::move(what)};
    return false;
  }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool skip(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  bool element() {
    const std::size_t begin = at_;
    switch (peek()) {
      case '(':
        return group();
      case ')':
        if (open_.empty()) return fail(begin, "there is no group that this ')' closes");
        open_.pop_back();
        ++at_;
        return repetition();
      case '[':
        return character_class() && repetition();
      case '\\': {
        Code code;
        return escape(code) && repetition();
      }
      case '|':
      case '^':
      case '$':
        ++at_;
        return !quantifier_stands_here() || fail(at_, "there is nothing to repeat");
      default:
        if (quantifier_stands_here()) return fail(begin, "there is nothing to repeat");
        (void)character();
        return repetition();
    }
  }

  /// An opening bracket, with what says of which kind the group is.
  bool group() {
    const std::size_t begin = at_++;
    if (!skip("?")) {
      open_.push_back(begin);
      return first_of_group();
    }
    for (const char* kind : {":", "=", "!", ">", "|", "<=", "<!"}) {
      if (!skip(kind)) continue;
      open_.push_back(begin);
      return first_of_group();
    }
    if (skip("#")) return close_at(begin, ')') && repetition();
    if (peek() == '<' || peek() == '\'') {
      const char close = peek() == '<' ? '>' : '\'';
      ++at_;
      open_.push_back(begin);
      return close_at(begin, close) && first_of_group();
    }
    if (peek() == 'P' && peek(1) == '<') {
      open_.push_back(begin);
      return close_at(begin, '>') && first_of_group();
    }
    // Options of the dialect, for a group of their own or from here on; calls of groups; conditions.
    const std::size_t word = at_;
    while (is_letter(peek()) || is_digit(peek()) || peek() == '-' || peek() == '+' || peek() == '^' || peek() == '&' ||
           peek() == '=' || peek() == '>' || peek() == '_')
      ++at_;
    if (at_ > word && skip(")")) return repetition();
    const bool is_known = (at_ > word && skip(":")) || (at_ == word && peek() == '(');
    if (!is_known) return fail(begin, "there is no such kind of group");
    open_.push_back(begin);
    return true;
  }
  bool first_of_group() { return !quantifier_stands_here() || fail(at_, "there is nothing to repeat"); }
  bool close_at(std::size_t begin, char close) {
    const std::size_t end = text_.find(close, at_);
    if (end == std::string_view::npos) return fail(begin, "this group is never closed");
    at_ = end + 1;
    return true;
  }

  [[nodiscard]] bool quantifier_stands_here() const {
    if (peek() == '*' || peek() == '+' || peek() == '?') return true;
    std::size_t ahead = 1;
    if (peek() != '{' || !is_digit(peek(ahead))) return false;
    while (is_digit(peek(ahead))) ++ahead;
    if (peek(ahead) == ',') ++ahead;
    while (is_digit(peek(ahead))) ++ahead;
    return peek(ahead) == '}';  // else it is text
  }

  /// Behind an element: how often it stands there, if that is said.
  bool repetition() {
    if (!quantifier_stands_here()) return true;
    const std::size_t begin = at_;
    if (peek() == '{') {
      const std::size_t end = text_.find('}', at_);
      const std::string_view counts = text_.substr(at_ + 1, end - at_ - 1);
      const std::size_t comma = counts.find(',');
      const bool has_end = comma != std::string_view::npos && comma + 1 < counts.size();
      if (has_end && is_above(counts.substr(0, comma), counts.substr(comma + 1)))
        return fail(begin, "the repetition ends below its beginning");
      at_ = end;
    }
    ++at_;
    if (peek() == '?' || peek() == '+') ++at_;  // reluctant or possessive
    return !quantifier_stands_here() || fail(at_, "repetition of a repetition");
  }

  bool character_class() {
    const std::size_t begin = at_++;
    (void)skip("^");
    while (peek() != ']' || at_ >= text_.size()) {
      Code low, high;
      if (!member(begin, low)) return false;
      if (peek() != '-' || peek(1) == ']') continue;
      const std::size_t dash = at_++;
      if (!member(begin, high)) return false;
      if (low.has_value() && high.has_value() && *high < *low) return fail(dash, "the range ends before it begins");
    }
    ++at_;
    return true;
  }

  bool member(std::size_t begin, Code& code) {
    if (at_ >= text_.size()) return fail(begin, "this '[' is never closed");
    if (peek() == '\\') return escape(code);
    code = character();
    return true;
  }

  std::uint32_t character() {
    const auto lead = static_cast<unsigned char>(text_[at_++]);
    const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    std::uint32_t code = more == 0 ? lead : lead & (0x3Fu >> more);
    for (int i = 0; i < more && at_ < text_.size(); ++i)
      code = code << 6 | (static_cast<unsigned char>(text_[at_++]) & 0x3F);
    return code;
  }

  bool escape(Code& code) {
    const std::size_t begin = at_++;
    if (at_ >= text_.size()) return fail(begin, "the escape is cut off");
    const char c = peek();
    if (!is_letter(c) && !is_digit(c)) {
      code = character();
      return true;
    }
    ++at_;
    if (c == 'x') {
      hexadecimal(2, code);
    } else if (c == 'u') {
      hexadecimal(4, code);
    } else if (c == 'c') {
      if (is_letter(peek())) ++at_;
    } else if (is_digit(c)) {
      for (int i = 0; i < 2 && is_digit(peek()); ++i) ++at_;
    } else if (c == 'p' || c == 'P' || c == 'k' || c == 'g' || c == 'N') {
      name();
    }
    return true;
  }

  /// Behind \x and \u: that many digits, or some in braces. Without them the letter is meant.
  void hexadecimal(std::size_t n_digits, Code& code) {
    const bool braced = peek() == '{';
    std::uint32_t value = 0;
    std::size_t n = braced ? 1 : 0;
    for (; n < (braced ? 7 : n_digits); ++n) {
      const auto digit = hex_value(peek(n));
      if (!digit.has_value()) break;
      value = value << 4 | *digit;
    }
    if (braced ? peek(n) != '}' : n < n_digits) return;
    at_ += braced ? n + 1 : n;
    code = value;
  }

  /// A name in brackets behind an escape, as far as there is one.
  void name() {
    const char close = peek() == '{' ? '}' : peek() == '<' ? '>' : '\0';
    if (close == '\0') return;
    std::size_t n = 1;
    while (is_letter(peek(n)) || is_digit(peek(n)) || peek(n) == '_' || peek(n) == '=' || peek(n) == ':' ||
           peek(n) == '^' || peek(n) == ' ' || peek(n) == '-')
      ++n;
    if (peek(n) == close) at_ += n + 1;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::size_t> open_;  // where the groups begin that are not closed yet
  RegexFault fault_;
};

}  // namespace

std::optional<RegexFault> find_regex_fault(std::string_view pattern) {
  return Checker(pattern).run();
}

}  // namespace common::grammar
