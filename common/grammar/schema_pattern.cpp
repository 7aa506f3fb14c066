// Regular expressions of JSON schemas -> GBNF. The expression speaks of the string's characters; what comes out is
// their spelling in JSON, so that whatever matches is a valid JSON string.
#include <algorithm>
#include <array>
#include <utility>

#include "common/grammar/regex_syntax.h"
#include "common/grammar/schema_rules.h"
#include "ggml/log.h"
#include "ggml/quoted.h"

namespace common::grammar {

using ggml::strf;

namespace {

constexpr int kMaxNesting = 100;
constexpr std::array<std::pair<std::uint32_t, char>, 7> kShortEscapes{
    {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};

using Set = std::vector<CodeRange>;

const Set kDigits{{'0', '9'}};
const Set kWordCharacters{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Set kWhiteSpace{{'\t', '\r'}, {' ', ' '}};
const Set kLineEnds{{'\n', '\n'}, {'\r', '\r'}};

bool contains(const Set& set, std::uint32_t code) {
  return std::any_of(set.begin(), set.end(), [&](const CodeRange& r) { return r.lo <= code && code <= r.hi; });
}

Set minus(const Set& set, const Set& taken) {
  Set out = complement(set);
  out.insert(out.end(), taken.begin(), taken.end());
  return complement(normalized(std::move(out)));
}

/// Reads an expression that find_regex_fault() has nothing to say about: its brackets match, its repetitions have
/// something to repeat.
class PatternReader {
 public:
  PatternReader(GrammarBuilder& builder, const std::string& pattern, const SchemaPlace& place)
      : b_(builder), text_(pattern), place_(place) {}

  std::string run() {
    if (const auto fault = find_regex_fault(text_)) fail(fault->offset, fault->what);
    if (text_.empty() || text_.front() != '^') fail(0, "must begin with ^: the whole string is matched");
    std::size_t n_backslashes = 0;
    while (n_backslashes + 1 < text_.size() && text_[text_.size() - 2 - n_backslashes] == '\\') ++n_backslashes;
    if (text_.size() < 2 || text_.back() != '$' || n_backslashes % 2 == 1)
      fail(text_.size() - 1, "must end with $: the whole string is matched");
    pos_ = 1;
    end_ = text_.size() - 1;
    return alternatives(0);
  }

 private:
  [[noreturn]] void fail(std::size_t offset, const std::string& what) const {
    pattern_error(place_, text_, offset, what);
  }
  [[nodiscard]] bool at_end() const { return pos_ >= end_; }
  [[nodiscard]] char peek(std::size_t ahead = 0) const { return pos_ + ahead < end_ ? text_[pos_ + ahead] : '\0'; }
  bool skip(std::string_view word) {
    if (text_.compare(pos_, word.size(), word) != 0 || pos_ + word.size() > end_) return false;
    pos_ += word.size();
    return true;
  }

  std::string alternatives(int depth) {
    if (depth > kMaxNesting) fail(pos_, strf("groups nest deeper than %d", kMaxNesting));
    std::vector<std::string> list{sequence(depth)};
    while (skip("|")) list.push_back(sequence(depth));
    return GrammarBuilder::any_of(list);
  }

  std::string sequence(int depth) {
    std::vector<std::string> items;
    std::string literal;  // single characters in a row
    const auto flush = [&] {
      if (!literal.empty()) items.push_back(GrammarBuilder::literal(literal));
      literal.clear();
    };
    while (!at_end() && peek() != '|' && peek() != ')') {
      std::string spelled;  // of a single character
      std::string item = atom(depth, spelled);
      const auto [min, max] = quantifier();
      if (!spelled.empty() && min == 1 && max == 1) {
        literal += spelled;
        continue;
      }
      flush();
      if (!spelled.empty()) item = GrammarBuilder::literal(spelled);
      if (item.empty()) continue;
      // As a rule of its own a group may be repeated up to the limit of repetitions.
      if (spelled.empty() && item.front() != '[' && (min > 1 || max > 1)) item = b_.rule(place_.name + "-part", item);
      items.push_back(GrammarBuilder::repeat(item, min, max));
    }
    flush();
    return GrammarBuilder::sequence(items);
  }

  /// The expression of one element, or in `spelled` the JSON text of one character.
  std::string atom(int depth, std::string& spelled) {
    const std::size_t begin = pos_;
    switch (peek()) {
      case '(':
        return group(depth);
      case '[':
        return set_text(character_class());
      case '.':
        ++pos_;
        return set_text(complement(kLineEnds));
      case '^':
      case '$':
        fail(begin, "^ and $ may only stand at the ends");
      case '\\': {
        Set set;
        std::uint32_t code = 0;
        if (escape(set, code)) return set_text(set);
        spelled = spell(code);
        return {};
      }
      default:
        spelled = spell(character());
        return {};
    }
  }

  std::string group(int depth) {
    const std::size_t begin = pos_++;
    for (const char* look : {"?=", "?!", "?<=", "?<!"}) {
      if (!skip(look)) continue;
      warn_of_look_around();
      (void)alternatives(depth + 1);
      ++pos_;  // its bracket
      return {};
    }
    if (!skip("?:") && peek() == '?') {
      const std::size_t close = text_.find('>', pos_);
      if (peek(1) != '<' || close == std::string::npos || close >= end_)
        fail(begin, "this kind of group is not supported");
      pos_ = close + 1;  // a named group
    }
    std::string body = alternatives(depth + 1);
    ++pos_;  // its bracket
    return body.empty() ? "\"\"" : body;
  }

  void warn_of_look_around() {
    if (warned_) return;
    warned_ = true;
    ggml::logf(ggml::LogLevel::warn, "json_schema: %s: look-around in %s is not checked",
               ggml::gguf::quoted(place_.pointer).c_str(), ggml::gguf::quoted(text_).c_str());
  }

  std::pair<int, int> quantifier() {
    int min = 1;
    int max = 1;
    const std::size_t at = pos_;
    if (skip("*")) {
      min = 0;
      max = GrammarBuilder::kUnlimited;
    } else if (skip("+")) {
      max = GrammarBuilder::kUnlimited;
    } else if (skip("?")) {
      min = 0;
    } else if (peek() == '{' && peek(1) >= '0' && peek(1) <= '9') {
      ++pos_;
      min = max = number();
      if (skip(",")) max = peek() == '}' ? GrammarBuilder::kUnlimited : number();
      if (!skip("}")) fail(at, "this repetition is not closed");
      if (min > kMaxRepetitions) fail(at, strf("more than %d repetitions", kMaxRepetitions));
    } else {
      return {1, 1};
    }
    (void)skip("?");  // reluctant or not, the same strings match
    if (peek() == '+') fail(pos_, "possessive repetitions are not supported");
    return {min, max};
  }

  int number() {
    int value = 0;
    while (peek() >= '0' && peek() <= '9') value = std::min(1'000'000, value * 10 + (text_[pos_++] - '0'));
    return value;
  }

  std::uint32_t character() {
    const auto lead = static_cast<unsigned char>(text_[pos_++]);
    const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    std::uint32_t code = more == 0 ? lead : lead & (0x3Fu >> more);
    for (int i = 0; i < more; ++i) code = code << 6 | (static_cast<unsigned char>(text_[pos_++]) & 0x3F);
    return code;
  }

  /// After a backslash: true and a set, or false and one character.
  bool escape(Set& set, std::uint32_t& code) {
    const std::size_t begin = pos_++;
    const char c = peek();
    if (c == 'd' || c == 'w' || c == 's' || c == 'D' || c == 'W' || c == 'S') {
      ++pos_;
      const Set& base = c == 'd' || c == 'D' ? kDigits : c == 'w' || c == 'W' ? kWordCharacters : kWhiteSpace;
      set = c >= 'a' ? base : complement(base);
      return true;
    }
    constexpr std::array<std::pair<char, char>, 6> kControls{
        {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}, {'0', '\0'}}};
    for (const auto& [letter, control] : kControls) {
      if (c != letter) continue;
      ++pos_;
      code = static_cast<unsigned char>(control);
      return false;
    }
    if (c == 'x' || c == 'u') {
      ++pos_;
      code = hexadecimal(begin, c == 'x' ? 2 : 4);
      return false;
    }
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_word) fail(begin, strf("the escape \\%c is not supported", c));
    code = character();
    return false;
  }

  std::uint32_t hexadecimal(std::size_t begin, int digits) {
    std::uint32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = peek();
      const bool is_digit = c >= '0' && c <= '9';
      const char lower = static_cast<char>(c | 0x20);
      if (!is_digit && !(lower >= 'a' && lower <= 'f')) fail(begin, "a hexadecimal digit is missing");
      code = code << 4 | static_cast<std::uint32_t>(is_digit ? c - '0' : lower - 'a' + 10);
      ++pos_;
    }
    if (code >= 0xD800 && code <= 0xDFFF) fail(begin, "a surrogate is not a character; write the character itself");
    return code;
  }

  Set character_class() {
    const std::size_t begin = pos_++;
    const bool negated = skip("^");
    Set set;
    while (peek() != ']') {
      Set part;
      CodeRange range;
      if (class_member(part, range.lo)) {
        set.insert(set.end(), part.begin(), part.end());
        continue;
      }
      range.hi = range.lo;
      if (peek() == '-' && peek(1) != ']' && pos_ + 1 < end_) {
        const std::size_t dash = pos_++;
        if (class_member(part, range.hi)) fail(dash, "a range cannot end with a class");
        if (range.hi < range.lo) fail(dash, "the range ends before it begins");
      }
      set.push_back(range);
    }
    ++pos_;
    set = normalized(std::move(set));
    if (negated) set = complement(set);
    if (set.empty()) fail(begin, "no character is in this class");
    return set;
  }

  bool class_member(Set& set, std::uint32_t& code) {
    if (peek() != '\\') {
      code = character();
      return false;
    }
    if (peek(1) == 'b') {
      pos_ += 2;
      code = '\b';
      return false;
    }
    return escape(set, code);
  }

  /// A character as it is written in a JSON string.
  static std::string spell(std::uint32_t code) {
    for (const auto& [character, letter] : kShortEscapes) {
      if (code == character) return {'\\', letter};
    }
    if (code < 0x20) return strf("\\u%04x", code);
    std::string out;
    append_utf8(out, code);
    return out;
  }

  std::string set_text(const Set& set) {
    const Set plain = minus(set, {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
    std::string letters;
    for (const auto& [character, letter] : kShortEscapes) {
      if (contains(set, character)) letters += letter;
    }
    if (letters.empty()) {
      if (plain.empty()) return GrammarBuilder::literal(spell(set.front().lo));
      return class_text(plain);
    }
    std::vector<CodeRange> ranges;
    for (const char c : letters) ranges.push_back({static_cast<std::uint32_t>(c), static_cast<std::uint32_t>(c)});
    const std::string escaped = "\"\\\\\" " + class_text(normalized(ranges));
    return b_.rule(place_.name + "-char", plain.empty() ? escaped : class_text(plain) + " | " + escaped);
  }

  GrammarBuilder& b_;
  const std::string& text_;
  const SchemaPlace& place_;
  std::size_t pos_ = 0;
  std::size_t end_ = 0;
  bool warned_ = false;
};

}  // namespace

std::string pattern_text(GrammarBuilder& builder, const std::string& pattern, const SchemaPlace& place) {
  return PatternReader(builder, pattern, place).run();
}

}  // namespace common::grammar
