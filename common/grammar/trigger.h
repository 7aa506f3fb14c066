#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/grammar/grammar_mask.h"

namespace common::grammar {

/// Watches a text for what starts a lazy grammar. Copies are independent. Thread-compatible.
class Trigger {
 public:
  /// Throws as GrammarMask().
  Trigger(const LazyTriggers& triggers, const llama::Vocab& vocab);

  /// What the grammar gets to read first: a part of a token, then whole tokens.
  struct Start {
    std::string text;
    std::vector<llama::Token> tokens;
  };
  /// Adds a token; a start when a trigger is met with it.
  [[nodiscard]] std::optional<Start> add(llama::Token token, std::string_view piece);
  /// Adds text that stands before the first token.
  [[nodiscard]] std::optional<Start> add_text(std::string_view text);

 private:
  class Pattern;
  [[nodiscard]] std::optional<std::size_t> find(std::size_t n_new) const;
  [[nodiscard]] Start start_at(std::size_t offset) const;

  std::vector<std::string> words_;
  std::vector<llama::Token> tokens_;
  std::vector<std::shared_ptr<const Pattern>> patterns_;  // immutable, shared by copies
  std::string only_after_;
  std::size_t search_from_ = 0;  // behind only_after
  bool is_armed_ = true;         // false: only_after has not been seen
  std::string text_;
  struct Seen {
    llama::Token token;
    std::size_t begin;
  };
  std::vector<Seen> seen_;
};

}  // namespace common::grammar
