#pragma once

#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/grammar/grammar_mask.h"
#include "common/grammar/syntax.h"
#include "llama/vocab.h"

namespace common::grammar::testing {

/// A SentencePiece vocabulary of these pieces, the 256 bytes, <unk>, <s> and </s>.
[[nodiscard]] llama::Vocab vocab_of(const std::vector<std::string>& pieces);

/// Whether a grammar accepts a whole text.
[[nodiscard]] bool accepts(const Grammar& grammar, std::string_view text);
[[nodiscard]] bool accepts(const std::string& gbnf, std::string_view text);

/// The message of the Error that parsing throws; empty when it does not.
[[nodiscard]] std::string error_of(const std::string& gbnf, const llama::Vocab* vocab = nullptr);

/// The plain meaning of a grammar, as its documentation says it: a set of stacks of positions in rules, over code
/// points, repetitions rewritten to rules. Slow and simple.
class Reference {
 public:
  explicit Reference(const Syntax& syntax);

  /// Thrown where this simple way of matching would take too long.
  struct TooAmbiguous {};
  static constexpr std::size_t kMaxStacks = 2000;

  struct Position {
    std::size_t rule = 0, alternative = 0, index = 0;
    // clang-tidy 14 takes the comparison with 0 for a null pointer. NOLINTNEXTLINE(modernize-use-nullptr)
    friend auto operator<=>(const Position&, const Position&) = default;
  };
  using Stack = std::vector<Position>;
  struct State {
    std::set<Stack> stacks;  // expanded: tops are characters; an empty stack: the text may end
    std::string pending;     // the beginning of a character
  };

  [[nodiscard]] State start() const;
  /// Nothing when the grammar does not allow the bytes here.
  [[nodiscard]] std::optional<State> after(const State& state, std::string_view bytes) const;
  [[nodiscard]] static bool may_end(const State& state);

 private:
  struct Element {
    bool is_rule = false;
    std::size_t rule = 0;
    std::vector<CodeRange> ranges;
  };
  using Body = std::vector<std::vector<Element>>;
  std::size_t add_rule(const Alternatives& body);
  Element element(const Item& item);
  void add_item(std::vector<Element>& out, const Item& item);
  void expand(Stack stack, std::set<Stack>& seen, std::set<Stack>& out) const;
  [[nodiscard]] const Element& at(const Position& p) const { return rules_[p.rule][p.alternative][p.index]; }

  std::vector<Body> rules_;
  std::size_t root_ = 0;
};

/// Random GBNF text, small, often recursive; it may be one that the parser refuses.
[[nodiscard]] std::string random_grammar(std::mt19937& random);

}  // namespace common::grammar::testing
