#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llama/types.h"

namespace llama {
class Vocab;
}

namespace common::grammar {

/// Where an element stands in the grammar's text; both count from 1, columns in characters.
struct Position {
  int line = 1, column = 1;
};

/// An inclusive range of code points.
struct CodeRange {
  std::uint32_t lo = 0, hi = 0;
  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};

enum class ItemKind : std::uint8_t { literal, characters, group, rule, token };

struct Item;
using Sequence = std::vector<Item>;
using Alternatives = std::vector<Sequence>;

inline constexpr std::uint32_t kLastCode = 0x10FFFF;  // of Unicode

/// Whether a rule's name may hold it.
[[nodiscard]] constexpr bool is_name_char(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

inline constexpr int kNoLimit = -1;
/// More repetitions than this are an error as a minimum and no limit as a maximum.
inline constexpr int kMaxRepetitions = 2000;
/// A grammar's text may be so long.
inline constexpr std::size_t kMaxGrammarBytes = std::size_t{16} << 20;

/// One element of a sequence with its repetition.
struct Item {
  ItemKind kind = ItemKind::literal;
  bool negated = false;  // token: any one token but this
  int min = 1, max = 1;  // max kNoLimit: as often as one likes
  int rule = -1;         // rule: index
  llama::Token token = llama::kNoToken;
  std::string text;               // literal: UTF-8, may be empty
  std::vector<CodeRange> ranges;  // characters: sorted, apart, without surrogates; negation is already done
  Alternatives body;              // group
  Position at;
};

struct Rule {
  std::string name;
  Alternatives body;
  bool defined = false;
  Position at;  // of the definition, or of the first use while there is none
};

struct Syntax {
  std::vector<Rule> rules;
  int root = -1;
};

/// Parses GBNF and checks what concerns the text alone. Throws as Grammar::parse().
[[nodiscard]] Syntax parse_gbnf(std::string_view text, const llama::Vocab* vocab);

/// Throws Error(invalid_argument) if a rule can reach itself without having consumed anything (left recursion).
void check_left_recursion(const Syntax& syntax);

/// Throws Error(code) "grammar: line L, column C: what".
[[noreturn]] void syntax_error(Position at, const std::string& what, bool is_limit = false);

/// Sorts, merges overlaps, and cuts out surrogates, which no UTF-8 text can hold.
[[nodiscard]] std::vector<CodeRange> normalized(std::vector<CodeRange> ranges);
/// All code points but those of `ranges` (normalized).
[[nodiscard]] std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges);

/// Appends the UTF-8 form of a code point (no surrogate, at most U+10FFFF).
void append_utf8(std::string& out, std::uint32_t code);

}  // namespace common::grammar
