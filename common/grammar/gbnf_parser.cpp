#include <algorithm>
#include <unordered_map>

#include "common/grammar/syntax.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/utf8.h"
#include "llama/vocab.h"

namespace common::grammar {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

void syntax_error(Position at, const std::string& what, bool is_limit) {
  throw Error(is_limit ? ErrorCode::exceeds_limit : ErrorCode::invalid_argument,
              strf("grammar: line %d, column %d: ", at.line, at.column) + what);
}

namespace {

constexpr int kMaxNesting = 200;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Helper rules that llama.cpp would make for the inside of an item; its limit on repetitions counts them.
std::int64_t helper_rules(const Alternatives& body);

std::int64_t helper_rules_inside(const Item& item) {
  return item.kind == ItemKind::group ? 1 + helper_rules(item.body) : 0;
}

std::int64_t helper_rules(const Alternatives& body) {
  std::int64_t n = 0;
  for (const Sequence& sequence : body) {
    for (const Item& item : sequence) {
      n += helper_rules_inside(item) + (item.max == kNoLimit ? 1 : item.max - item.min);
    }
  }
  return n;
}

class Parser {
 public:
  Parser(std::string_view text, const llama::Vocab* vocab) : text_(text), vocab_(vocab) {}

  Syntax run() {
    skip(Newlines::allowed);
    while (!at_end()) {
      parse_rule();
      skip(Newlines::allowed);
    }
    for (const Rule& rule : syntax_.rules) {
      if (!rule.defined) syntax_error(rule.at, "the rule '" + rule.name + "' is not defined");
    }
    const auto root = rule_of_name_.find("root");
    if (root == rule_of_name_.end()) syntax_error({}, "there is no rule 'root', with which every grammar begins");
    syntax_.root = root->second;
    return std::move(syntax_);
  }

 private:
  enum class Newlines : std::uint8_t { end_rule, allowed };

  [[nodiscard]] bool at_end() const { return pos_ >= text_.size(); }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
  }
  [[nodiscard]] bool at(char c) const { return !at_end() && text_[pos_] == c; }
  [[nodiscard]] bool at_newline() const { return at('\n') || at('\r'); }

  [[nodiscard]] Position position() const { return position_of(pos_); }
  [[nodiscard]] Position position_of(std::size_t offset) const {
    // Positions are needed in order, so each stretch is counted once.
    if (offset < counted_) counted_ = 0, place_ = {};
    for (; counted_ < offset && counted_ < text_.size(); ++counted_) {
      const auto c = static_cast<unsigned char>(text_[counted_]);
      const bool crlf = c == '\r' && counted_ + 1 < text_.size() && text_[counted_ + 1] == '\n';
      if (c == '\n' || (c == '\r' && !crlf)) {
        ++place_.line;
        place_.column = 1;
      } else if ((c & 0xC0) != 0x80 && !crlf) {
        ++place_.column;
      }
    }
    return place_;
  }
  [[noreturn]] void fail(const std::string& what) const { syntax_error(position(), what); }
  [[nodiscard]] std::string found() const {
    if (at_end()) return "the end of the grammar";
    if (at_newline()) return "the end of the line";
    if (const auto code = static_cast<unsigned char>(peek()); code < 0x20 || code == 0x7F)
      return strf("the character U+%04X", code);
    std::string character(1, peek());
    for (std::size_t i = 1; (static_cast<unsigned char>(peek(i)) & 0xC0) == 0x80; ++i) character += peek(i);
    return "'" + character + "'";
  }

  /// Blanks and comments, and line ends where they mean nothing.
  void skip(Newlines newlines) {
    while (!at_end()) {
      if (at(' ') || at('\t') || (newlines == Newlines::allowed && at_newline())) {
        ++pos_;
      } else if (at('#')) {
        while (!at_end() && !at_newline()) ++pos_;
      } else {
        return;
      }
    }
  }

  std::string parse_name() {
    const std::size_t begin = pos_;
    while (!at_end() && is_name_char(peek())) ++pos_;
    return std::string(text_.substr(begin, pos_ - begin));
  }

  int rule_index(const std::string& name, Position where) {
    const auto [it, is_new] = rule_of_name_.try_emplace(name, static_cast<int>(syntax_.rules.size()));
    if (is_new) {
      syntax_.rules.emplace_back();
      syntax_.rules.back().name = name;
      syntax_.rules.back().at = where;
    }
    return it->second;
  }

  void parse_rule() {
    const Position where = position();
    const std::string name = parse_name();
    if (name.empty()) fail("expected the name of a rule (letters, digits, '-'), found " + found());
    skip(Newlines::end_rule);
    if (text_.substr(pos_, 3) != "::=") fail("expected '::=' after the name '" + name + "', found " + found());
    pos_ += 3;
    skip(Newlines::allowed);
    Alternatives body = parse_alternatives(Newlines::end_rule, 0);
    if (!at_end() && !at_newline()) {
      const char c = peek();
      if (c == '*' || c == '+' || c == '?' || c == '{') fail(found() + " has nothing before it to repeat");
      fail("unexpected " + found() + " in the rule '" + name + "'");
    }
    Rule& rule = syntax_.rules[static_cast<std::size_t>(rule_index(name, where))];
    rule.body = std::move(body);
    rule.defined = true;
    rule.at = where;
  }

  Alternatives parse_alternatives(Newlines newlines, int depth) {
    if (depth > kMaxNesting) syntax_error(position(), strf("parentheses nest deeper than %d", kMaxNesting), true);
    Alternatives alternatives;
    alternatives.push_back(parse_sequence(newlines, depth));
    while (at('|')) {
      ++pos_;
      skip(Newlines::allowed);
      alternatives.push_back(parse_sequence(newlines, depth));
    }
    return alternatives;
  }

  Sequence parse_sequence(Newlines newlines, int depth) {
    Sequence sequence;
    while (!at_end()) {
      Item item;
      item.at = position();
      if (!parse_item(item, depth)) return sequence;
      skip(newlines);
      if (parse_repetition(item)) skip(newlines);
      sequence.push_back(std::move(item));
    }
    return sequence;
  }

  /// False: no item begins here.
  bool parse_item(Item& item, int depth) {
    const char c = peek();
    if (c == '"') {
      parse_literal(item);
    } else if (c == '[') {
      parse_class(item);
    } else if (c == '.') {
      ++pos_;
      item.kind = ItemKind::characters;
      item.ranges = complement({});
    } else if (c == '(') {
      ++pos_;
      skip(Newlines::allowed);
      item.kind = ItemKind::group;
      item.body = parse_alternatives(Newlines::allowed, depth + 1);
      if (!at(')')) {
        if (at_end()) syntax_error(item.at, "this '(' is never closed");
        fail("expected ')', found " + found());
      }
      ++pos_;
    } else if (c == '<' || c == '!') {
      parse_token(item);
    } else if (is_name_char(c)) {
      item.kind = ItemKind::rule;
      item.rule = rule_index(parse_name(), item.at);
    } else {
      return false;
    }
    return true;
  }

  /// One character of a literal or class, escapes resolved.
  std::uint32_t parse_character() {
    if (peek() == '\\') return parse_escape();
    const auto lead = static_cast<unsigned char>(peek());
    const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;  // the text is valid UTF-8
    std::uint32_t code = more == 0 ? lead : lead & (0x3Fu >> more);
    ++pos_;
    for (int i = 0; i < more; ++i, ++pos_) code = code << 6 | (static_cast<unsigned char>(peek()) & 0x3F);
    return code;
  }

  std::uint32_t parse_escape() {
    const std::size_t begin = pos_++;
    const char c = peek();
    if (at_end()) syntax_error(position_of(begin), "the escape at the end of the grammar is cut off");
    ++pos_;
    switch (c) {
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<unsigned char>(c);
      case 'x':
        return parse_hex(begin, 2);
      case 'u':
        return parse_hex(begin, 4);
      case 'U':
        return parse_hex(begin, 8);
      default:
        pos_ = begin + 1;
        syntax_error(position_of(begin), "unknown escape: \\ before " + found() +
                                             R"( (known: \xHH \uHHHH \UHHHHHHHH \t \r \n \\ \" \[ \]))");
    }
  }

  std::uint32_t parse_hex(std::size_t begin, int digits) {
    std::uint32_t code = 0;
    for (int i = 0; i < digits; ++i, ++pos_) {
      const int value = at_end() ? -1 : hex_value(peek());
      if (value < 0) syntax_error(position_of(begin), strf("this escape needs %d hexadecimal digits", digits));
      code = code << 4 | static_cast<std::uint32_t>(value);
    }
    if (code > kLastCode) syntax_error(position_of(begin), strf("U+%X is beyond the last character, U+10FFFF", code));
    return code;
  }

  void parse_literal(Item& item) {
    item.kind = ItemKind::literal;
    ++pos_;
    while (!at('"')) {
      if (at_end()) syntax_error(item.at, "this '\"' is never closed");
      const std::size_t begin = pos_;
      const std::uint32_t code = parse_character();
      if (code >= 0xD800 && code <= 0xDFFF)
        syntax_error(position_of(begin), "a surrogate is not a character; write the character itself");
      append_utf8(item.text, code);
    }
    ++pos_;
  }

  void parse_class(Item& item) {
    item.kind = ItemKind::characters;
    ++pos_;
    const bool negated = at('^');
    if (negated) ++pos_;
    std::vector<CodeRange> ranges;
    while (!at(']')) {
      if (at_end()) syntax_error(item.at, "this '[' is never closed");
      const std::size_t begin = pos_;
      CodeRange range;
      range.lo = range.hi = parse_character();
      if (at('-') && pos_ + 1 < text_.size() && peek(1) != ']') {
        ++pos_;
        range.hi = parse_character();
        if (range.hi < range.lo) syntax_error(position_of(begin), "the range ends before it begins");
      }
      ranges.push_back(range);
    }
    ++pos_;
    if (ranges.empty() && !negated) syntax_error(item.at, "the class is empty: nothing can match it");
    item.ranges = normalized(std::move(ranges));
    if (negated) item.ranges = complement(item.ranges);
  }

  void parse_token(Item& item) {
    item.kind = ItemKind::token;
    if (at('!')) {
      item.negated = true;
      ++pos_;
    }
    if (!at('<')) fail("expected a token (<text> or <[id]>) after '!', found " + found());
    const std::size_t begin = pos_;
    while (!at_end() && !at_newline() && !at('>')) ++pos_;
    if (!at('>')) syntax_error(item.at, "this '<' is never closed: a token is written <text> or <[id]>");
    ++pos_;
    const std::string text(text_.substr(begin, pos_ - begin));
    item.token = text.size() >= 2 && text[1] == '[' ? token_of_id(item.at, text) : token_of_text(item.at, text);
  }

  [[nodiscard]] llama::Token token_of_id(Position where, const std::string& text) const {
    // "<[", digits, "]>"
    const bool closed = text.size() >= 5 && text[text.size() - 2] == ']';
    const std::string digits = closed ? text.substr(2, text.size() - 4) : "";
    if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos)
      syntax_error(where, "a token id is written <[123]>");
    const llama::Token token = std::stoi(digits);
    if (vocab_ != nullptr && !vocab_->contains(token))
      syntax_error(where, strf("token %d is outside the vocabulary of %d tokens", token, vocab_->n_tokens()));
    return token;
  }

  [[nodiscard]] llama::Token token_of_text(Position where, const std::string& text) const {
    if (vocab_ == nullptr) syntax_error(where, "the token " + text + " needs a vocabulary; write its id, <[123]>");
    const std::vector<llama::Token> tokens = vocab_->tokenize(text, {.add_special = false, .parse_special = true});
    if (tokens.size() != 1)
      syntax_error(where, strf("%s is %zu tokens in this vocabulary, not one", text.c_str(), tokens.size()));
    return tokens.front();
  }

  bool parse_repetition(Item& item) {
    const Position where = position();
    switch (peek()) {
      case '*':
        item.min = 0;
        item.max = kNoLimit;
        break;
      case '+':
        item.max = kNoLimit;
        break;
      case '?':
        item.min = 0;
        break;
      case '{':
        parse_counts(item, where);
        break;
      default:
        return false;
    }
    ++pos_;
    const std::int64_t times = item.max == kNoLimit ? item.min : item.max;
    if (times > 1 && helper_rules_inside(item) * times >= kMaxRepetitions) {
      syntax_error(
          where,
          strf("too many repetitions: the group needs %lld rules, repeated %lld times; the product must "
               "stay below %d",
               static_cast<long long>(helper_rules_inside(item)), static_cast<long long>(times), kMaxRepetitions));
    }
    return true;
  }

  /// {n} {n,} {n,m}; stops at the brace.
  void parse_counts(Item& item, Position where) {
    ++pos_;
    skip(Newlines::allowed);
    item.min = parse_count();
    if (item.min > kMaxRepetitions)
      syntax_error(where, strf("at least %d repetitions are asked for; the limit is %d", item.min, kMaxRepetitions));
    item.max = item.min;
    if (at(',')) {
      ++pos_;
      skip(Newlines::allowed);
      item.max = at('}') ? kNoLimit : parse_count();
      if (item.max > kMaxRepetitions) item.max = kNoLimit;
      if (item.max != kNoLimit && item.max < item.min) syntax_error(where, "the repetition ends below its beginning");
    }
    if (!at('}')) fail("expected '}' after the repetition, found " + found());
  }

  int parse_count() {
    constexpr int kCeiling = 100'000'000;
    if (at_end() || peek() < '0' || peek() > '9') fail("expected a number of repetitions, found " + found());
    int value = 0;
    while (!at_end() && peek() >= '0' && peek() <= '9') {
      value = std::min(kCeiling, value * 10 + (peek() - '0'));
      ++pos_;
    }
    skip(Newlines::allowed);
    return value;
  }

  std::string_view text_;
  const llama::Vocab* vocab_;
  std::size_t pos_ = 0;
  mutable std::size_t counted_ = 0;
  mutable Position place_;
  Syntax syntax_;
  std::unordered_map<std::string, int> rule_of_name_;
};

}  // namespace

Syntax parse_gbnf(std::string_view text, const llama::Vocab* vocab) {
  if (text.size() > kMaxGrammarBytes)
    throw Error(ErrorCode::exceeds_limit,
                strf("grammar: %zu bytes of text; the limit is %zu", text.size(), kMaxGrammarBytes));
  if (text.substr(0, 11) == "%llguidance")
    throw Error(ErrorCode::invalid_argument, "grammar: llguidance grammars are not supported",
                "write the grammar in GBNF");
  if (!llama::is_valid_utf8(text)) throw Error(ErrorCode::invalid_argument, "grammar: the text is not valid UTF-8");
  Syntax syntax = Parser(text, vocab).run();
  check_left_recursion(syntax);
  return syntax;
}

}  // namespace common::grammar
