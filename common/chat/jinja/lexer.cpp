#include "common/chat/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
bool is_name_start(char c) {
  const auto b = static_cast<unsigned char>(c);
  return b >= 0x80 || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_decimal(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_char(char c) {
  return is_name_start(c) || is_decimal(c);
}

// All line ends become \n, and one at the very end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalize_newlines(source)), s_(text_) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) template_text();
    emit(TokenKind::end, {}, at_);
    return std::move(tokens_);
  }

 private:
  enum class Tag { variable, block, comment };

  [[noreturn]] void fail(std::size_t offset, std::string message) {
    throw TemplateError(TemplateError::Origin::syntax, position(offset), std::move(message));
  }

  // Offsets are asked for in rising order, nearly always: the cursor makes that linear.
  SourcePos position(std::size_t offset) {
    if (offset < cursor_offset_) {
      cursor_offset_ = 0;
      cursor_ = {};
    }
    while (cursor_offset_ < std::min(offset, s_.size())) {
      if (s_[cursor_offset_] == '\n') {
        ++cursor_.line;
        cursor_.column = 1;
        ++cursor_offset_;
      } else {
        next_code_point(s_, cursor_offset_);
        ++cursor_.column;
      }
    }
    return cursor_;
  }

  void emit(TokenKind kind, std::string text, std::size_t offset) {
    tokens_.push_back({kind, std::move(text), position(offset)});
  }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < s_.size() ? s_[at_ + ahead] : '\0'; }
  bool looking_at(std::string_view what) const { return s_.substr(at_, what.size()) == what; }

  void skip_space() {
    while (at_ < s_.size()) {
      std::size_t next = at_;
      if (!is_space(next_code_point(s_, next))) break;
      at_ = next;
    }
  }

  // Text up to the next tag, then the tag.
  void template_text() {
    const std::size_t first = at_;
    std::size_t tag = s_.find('{', at_);
    while (tag != std::string_view::npos &&
           (tag + 1 >= s_.size() || std::string_view("{%#").find(s_[tag + 1]) == std::string_view::npos))
      tag = s_.find('{', tag + 1);
    if (tag == std::string_view::npos) {
      emit(TokenKind::text, std::string(s_.substr(first)), first);
      at_ = s_.size();
      return;
    }
    const char second = s_[tag + 1];
    const Tag kind = second == '{' ? Tag::variable : second == '%' ? Tag::block : Tag::comment;
    at_ = tag + 2;
    const char sign = peek();
    if (sign == '-' || sign == '+') ++at_;
    text_token(first, tag, kind, sign);
    switch (kind) {
      case Tag::comment:
        comment(tag);
        break;
      case Tag::variable:
        emit(TokenKind::variable_begin, {}, tag);
        code(tag, Tag::variable);
        break;
      case Tag::block:
        if (raw_begins()) {
          raw(tag);
        } else {
          emit(TokenKind::block_begin, {}, tag);
          code(tag, Tag::block);
        }
        break;
    }
  }

  // Applies `-` and lstrip_blocks of the tag at `tag` to the text in front of it.
  void text_token(std::size_t first, std::size_t tag, Tag kind, char sign) {
    std::string_view text = s_.substr(first, tag - first);
    if (sign == '-') {
      text = strip(text, Side::right);
    } else if (sign != '+' && kind != Tag::variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && strip(text.substr(line), Side::both).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) emit(TokenKind::text, std::string(text), first);
  }

  // Behind the closing marker of a tag that ended with `sign`.
  void after_tag(char sign, bool trim_newline) {
    const std::size_t first = at_;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && trim_newline && peek() == '\n') {
      ++at_;
    }
    line_starting_ = at_ > first && s_[at_ - 1] == '\n';
  }

  void comment(std::size_t tag) {
    const std::size_t close = s_.find("#}", at_);
    if (close == std::string_view::npos) fail(tag, "Missing end of comment tag");
    const char sign = close > at_ && (s_[close - 1] == '-' || s_[close - 1] == '+') ? s_[close - 1] : '\0';
    at_ = close + 2;
    after_tag(sign, true);
  }

  // At `raw %}`; consumes it when it is there.
  bool raw_begins() {
    const std::size_t first = at_;
    skip_space();
    if (looking_at("raw") && !is_name_char(peek(3))) {
      at_ += 3;
      skip_space();
      const char sign = peek() == '-' ? '-' : '\0';
      if (sign) ++at_;
      if (looking_at("%}")) {
        at_ += 2;
        after_tag(sign, false);
        return true;
      }
    }
    at_ = first;
    return false;
  }

  void raw(std::size_t tag) {
    const std::size_t first = at_;
    for (std::size_t open = s_.find("{%", at_); open != std::string_view::npos; open = s_.find("{%", open + 2)) {
      at_ = open + 2;
      const char sign = peek();
      if (sign == '-' || sign == '+') ++at_;
      skip_space();
      if (!looking_at("endraw") || is_name_char(peek(6))) continue;
      at_ += 6;
      skip_space();
      const char end_sign = peek();
      if (end_sign == '-' || end_sign == '+') ++at_;
      if (!looking_at("%}")) continue;
      at_ += 2;
      text_token(first, open, Tag::block, sign);
      after_tag(end_sign, true);
      return;
    }
    fail(tag, "Missing end of raw directive");
  }

  // The inside of {{ }} or {% %}.
  void code(std::size_t tag, Tag kind) {
    const std::string_view close = kind == Tag::variable ? "}}" : "%}";
    brackets_.clear();
    for (;;) {
      skip_space();
      if (at_ >= s_.size()) {
        if (!brackets_.empty())
          fail(brackets_.back().second, std::string("'") + brackets_.back().first + "' was never closed");
        fail(tag, kind == Tag::variable ? "unexpected end of template, expected 'end of print statement'"
                                        : "unexpected end of template, expected 'end of statement block'");
      }
      if (brackets_.empty()) {
        const std::size_t sign = peek() == '-' || (peek() == '+' && kind == Tag::block) ? 1 : 0;
        if (s_.substr(at_ + sign, 2) == close) {
          emit(kind == Tag::variable ? TokenKind::variable_end : TokenKind::block_end, {}, at_);
          const char mark = sign ? peek() : '\0';
          at_ += sign + 2;
          after_tag(mark, kind == Tag::block);
          return;
        }
      }
      token();
    }
  }

  void token() {
    const char c = peek();
    if (is_decimal(c)) {
      number();
    } else if (is_name_start(c)) {
      const std::size_t first = at_;
      while (at_ < s_.size() && is_name_char(s_[at_])) ++at_;
      emit(TokenKind::name, std::string(s_.substr(first, at_ - first)), first);
    } else if (c == '\'' || c == '"') {
      string();
    } else {
      operator_token();
    }
  }

  // Digits of `base` with single underscores between them; the offset behind them.
  template <class Digit>
  std::size_t digits(std::size_t i, Digit is_digit_char) const {
    while (i < s_.size() && (is_digit_char(s_[i]) || (s_[i] == '_' && i + 1 < s_.size() && is_digit_char(s_[i + 1]))))
      ++i;
    return i;
  }

  void number() {
    const std::size_t first = at_;
    const auto finish = [&](TokenKind kind, std::size_t end) {
      std::string text(s_.substr(first, end - first));
      text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
      at_ = end;
      emit(kind, std::move(text), first);
    };
    const char marker = static_cast<char>(peek(1) | 0x20);
    const int base = peek() != '0' ? 10 : marker == 'x' ? 16 : marker == 'o' ? 8 : marker == 'b' ? 2 : 10;
    if (base != 10) {
      const std::size_t end = digits(first + 2, [base](char c) {
        if (base == 16) return is_decimal(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
        return c >= '0' && c < '0' + base;
      });
      if (end > first + 2) return finish(TokenKind::integer, end);
    }
    std::size_t end = digits(first, is_decimal);
    bool floating = false;
    // After a dot comes the index of `list.0`, never a fraction.
    const bool after_dot = first > 0 && s_[first - 1] == '.';
    if (!after_dot && end + 1 < s_.size() && s_[end] == '.' && is_decimal(s_[end + 1])) {
      end = digits(end + 1, is_decimal);
      floating = true;
    }
    if (!after_dot && end < s_.size() && (s_[end] | 0x20) == 'e') {
      const std::size_t sign = end + 1 < s_.size() && (s_[end + 1] == '+' || s_[end + 1] == '-') ? 1 : 0;
      if (end + 1 + sign < s_.size() && is_decimal(s_[end + 1 + sign])) {
        end = digits(end + 1 + sign, is_decimal);
        floating = true;
      }
    }
    finish(floating ? TokenKind::floating : TokenKind::integer, end);
  }

  void string() {
    const std::size_t first = at_;
    const char quote = s_[at_++];
    std::string out;
    while (at_ < s_.size() && s_[at_] != quote) {
      if (s_[at_] == '\\' && at_ + 1 < s_.size()) {
        ++at_;
        escape(out);
      } else {
        out += s_[at_++];
      }
    }
    if (at_ >= s_.size())
      fail(first, std::string("unexpected char '") + (quote == '\'' ? "\\'" : "\"") + "': the string is not closed");
    ++at_;
    emit(TokenKind::string, std::move(out), first);
  }

  // Behind a backslash.
  void escape(std::string& out) {
    const char c = s_[at_++];
    constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t i = kFrom.find(c); i != std::string_view::npos) {
      out += kTo[i];
    } else if (c >= '0' && c <= '7') {
      char32_t value = static_cast<char32_t>(c - '0');
      for (int n = 1; n < 3 && peek() >= '0' && peek() <= '7'; ++n)
        value = value * 8 + static_cast<char32_t>(s_[at_++] - '0');
      append_utf8(out, value);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      hex_escape(out, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c != '\n') {  // an escaped line end continues the line
      out += '\\';
      out += c;
    }
  }

  void hex_escape(std::string& out, int n) {
    const std::size_t first = at_;
    const auto read = [&]() -> char32_t {
      char32_t value = 0;
      for (int i = 0; i < n; ++i) {
        const char c = peek();
        const int digit = is_decimal(c) ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
        if (digit < 0)
          fail(first, "truncated escape in a string: " + std::to_string(n) + " hexadecimal digits expected");
        value = value * 16 + static_cast<char32_t>(digit);
        ++at_;
      }
      return value;
    };
    char32_t value = read();
    const bool high = value >= 0xd800 && value < 0xdc00;
    if (n == 4 && high && looking_at("\\u")) {  // a pair of surrogates is one character
      const std::size_t back = at_;
      at_ += 2;
      const char32_t low = read();
      if (low >= 0xdc00 && low < 0xe000) {
        value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
      } else {
        at_ = back;
      }
    }
    if (value > 0x10ffff) fail(first, "illegal Unicode character in a string");
    append_utf8(out, value >= 0xd800 && value < 0xe000 ? char32_t{0xfffd} : value);
  }

  void operator_token() {
    static constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    "|",  ",",  ".",  ":",  ";",  "=",  "<", ">"};
    const std::size_t first = at_;
    for (const std::string_view op : kOperators) {
      if (!looking_at(op)) continue;
      at_ += op.size();
      balance(op[0], first);
      emit(TokenKind::op, std::string(op), first);
      return;
    }
    std::size_t end = at_;
    next_code_point(s_, end);
    fail(first, "unexpected char '" + std::string(s_.substr(first, end - first)) + "'");
  }

  void balance(char c, std::size_t offset) {
    if (c == '(' || c == '[' || c == '{') {
      brackets_.emplace_back(c, offset);
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty()) fail(offset, std::string("unexpected '") + c + "'");
      const char open = brackets_.back().first;
      const char expected = open == '(' ? ')' : open == '[' ? ']' : '}';
      if (c != expected) fail(offset, std::string("unexpected '") + c + "', expected '" + expected + "'");
      brackets_.pop_back();
    }
  }

  const std::string text_;
  const std::string_view s_;
  std::size_t at_ = 0;
  bool line_starting_ = true;  // only a line end, or nothing, lies before the text that follows
  std::vector<std::pair<char, std::size_t>> brackets_;
  std::vector<Token> tokens_;
  std::size_t cursor_offset_ = 0;
  SourcePos cursor_;
};
}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace common::jinja
