#include <algorithm>

#include "common/grammar/schema_rules.h"
#include "ggml/log.h"

namespace common::grammar {

using ggml::strf;

namespace {

constexpr std::size_t kDefaultDigits = 16;

std::string digit_range(char lo, char hi) {
  return lo == hi ? strf("\"%c\"", lo) : strf("[%c-%c]", lo, hi);
}

std::string any_digits(std::size_t n) {
  if (n == 0) return {};
  return n == 1 ? "[0-9]" : strf("[0-9]{%zu}", n);
}

bool all(const std::string& digits, char digit) {
  return std::all_of(digits.begin(), digits.end(), [&](char c) { return c == digit; });
}

/// Numbers of equal length from `lo` to `hi`.
std::string same_length(const std::string& lo, const std::string& hi) {
  if (lo.empty()) return {};
  if (lo == hi) return "\"" + lo + "\"";
  const std::string lo_rest = lo.substr(1);
  const std::string hi_rest = hi.substr(1);
  const std::size_t n = lo_rest.size();
  if (lo.front() == hi.front())
    return GrammarBuilder::sequence({digit_range(lo[0], lo[0]), same_length(lo_rest, hi_rest)});
  std::vector<std::string> parts;
  char first = lo.front();  // of the digits whose rest is free
  char last = hi.front();
  if (!all(lo_rest, '0')) {
    parts.push_back(GrammarBuilder::sequence({digit_range(first, first), same_length(lo_rest, std::string(n, '9'))}));
    ++first;
  }
  std::string tail;
  if (!all(hi_rest, '9')) {
    tail = GrammarBuilder::sequence({digit_range(last, last), same_length(std::string(n, '0'), hi_rest)});
    --last;
  }
  if (first <= last) parts.push_back(GrammarBuilder::sequence({digit_range(first, last), any_digits(n)}));
  if (!tail.empty()) parts.push_back(tail);
  return GrammarBuilder::any_of(parts);
}

std::string power_of_ten(int exponent) {
  return "1" + std::string(static_cast<std::size_t>(exponent), '0');
}

/// Numbers from `lo_text` to `hi_text`, both without a sign.
std::string natural_range(const std::string& lo_text, const std::string& hi_text) {
  std::vector<std::string> parts;
  int first_whole = 0;  // lengths of which all numbers are in the range
  int last_whole = -1;
  const auto add_whole = [&] {
    if (last_whole < first_whole) return;
    parts.push_back(first_whole == last_whole
                        ? GrammarBuilder::sequence({"[1-9]", any_digits(static_cast<std::size_t>(first_whole - 1))})
                        : strf("[1-9] [0-9]{%d,%d}", first_whole - 1, last_whole - 1));
    last_whole = first_whole - 1;
  };
  for (std::size_t length = lo_text.size(); length <= hi_text.size(); ++length) {
    const int digits = static_cast<int>(length);
    const std::string from = length == lo_text.size() ? lo_text : power_of_ten(digits - 1);
    const std::string to = length == hi_text.size() ? hi_text : std::string(length, '9');
    if (from == power_of_ten(digits - 1) && all(to, '9')) {
      if (last_whole < first_whole) first_whole = digits;
      last_whole = digits;
    } else {
      add_whole();
      parts.push_back(same_length(from, to));
    }
  }
  add_whole();
  return GrammarBuilder::any_of(parts);
}

/// The largest number with as many digits as `digits`, but at least 16 of them.
std::string open_end(const std::string& digits) {
  return std::string(std::max(digits.size(), kDefaultDigits), '9');
}

/// Of numbers without a sign.
bool is_below(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

/// One more, or one less of a number above 0.
std::string stepped(std::string digits, bool up) {
  const char over = up ? '9' : '0';
  std::size_t at = digits.size();
  while (at > 0 && digits[at - 1] == over) digits[--at] = up ? '0' : '9';
  if (at > 0) {
    digits[at - 1] = static_cast<char>(digits[at - 1] + (up ? 1 : -1));
  } else {
    digits.insert(0, 1, '1');
  }
  if (digits.size() > 1 && digits.front() == '0') digits.erase(0, 1);
  return digits;
}

}  // namespace

WholeNumber WholeNumber::next(int step) const {
  if (digits == "0") return {step < 0, "1"};
  WholeNumber out{negative, stepped(digits, (step > 0) != negative)};
  if (out.digits == "0") out.negative = false;
  return out;
}

bool operator<(const WholeNumber& a, const WholeNumber& b) {
  if (a.negative != b.negative) return a.negative;
  return a.negative ? is_below(b.digits, a.digits) : is_below(a.digits, b.digits);
}

std::string integer_range(const std::optional<WholeNumber>& min, const std::optional<WholeNumber>& max) {
  std::vector<std::string> parts;
  const bool has_negative = !min.has_value() || min->negative;
  if (has_negative) {
    const std::string nearest = max.has_value() && max->negative ? max->digits : "1";
    const std::string farthest = min.has_value() ? min->digits : open_end(nearest);
    parts.push_back(GrammarBuilder::sequence({"\"-\"", natural_range(nearest, farthest)}));
  }
  if (!max.has_value() || !max->negative) {
    const std::string lowest = has_negative ? "0" : min->digits;
    parts.push_back(natural_range(lowest, max.has_value() ? max->digits : open_end(lowest)));
  }
  return GrammarBuilder::any_of(parts);
}

}  // namespace common::grammar
