#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat/reply_parser.h"
#include "common/grammar/grammar_mask.h"
#include "llama/sampler.h"
#include "llama/types.h"

namespace common::chat {

/// What holds the tokens of a reply to its format: a grammar, at once or from the first call on, and a limit of
/// reasoning. Immutable; shared by the completions of a request.
struct ReplyRules {
  ReplyReading reading;
  std::shared_ptr<const grammar::CompiledGrammar> grammar;  // null: none
  std::string grammar_opening;  // text that a grammar which is not lazy has read before the first token
  bool lazy = false;
  /// After so many tokens of reasoning `reasoning_end` is written, once the character that they end in is whole; -1: no
  /// limit.
  int reasoning_budget = -1;
  std::vector<llama::Token> reasoning_end;
};

/// The place of one completion in its rules. Thread-compatible; refers to `vocab`.
class ReplyMask final : public llama::TokenMask {
 public:
  ReplyMask(std::shared_ptr<const ReplyRules> rules, const llama::Vocab& vocab);

  bool fill(std::span<std::uint32_t> words) override;
  void accept(llama::Token token) override;
  [[nodiscard]] std::string failure() const override;

 private:
  void read(std::string_view piece);
  void start_grammar(const std::string& text);
  void count_reasoning(bool was_inside);
  bool fill_rest_of_character(std::span<std::uint32_t> words);

  const std::shared_ptr<const ReplyRules> rules_;
  const llama::Vocab& vocab_;
  ReplyParser parser_;
  std::optional<grammar::GrammarMask> grammar_;  // active
  int n_reasoning_ = 0;
  std::string unfinished_;             // the beginning of a character with which the text ends
  bool spent_ = false;                 // the budget, and reasoning_end waits for the rest of that character
  std::optional<std::size_t> forced_;  // the next of reasoning_end
};

/// The tokens without which a format's marks would not be seen: special ones that occur in them. Ascending.
[[nodiscard]] std::vector<llama::Token> tokens_of_marks(const ReplyFormat& format, const llama::Vocab& vocab);

}  // namespace common::chat
