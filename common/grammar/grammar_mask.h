#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/grammar/grammar.h"
#include "llama/sampler.h"
#include "llama/types.h"

namespace common::grammar {

class MaskEngine;
class Matcher;
class TokenTrie;
class Trigger;

/// What starts a lazy grammar; see LazyTriggers.
struct LazyTriggers {
  std::vector<std::string> words;     // searched anywhere in the text so far; the grammar begins with the word
  std::vector<std::string> patterns;  // PCRE2; the grammar begins with the first group that matched, else the match
  std::vector<llama::Token> tokens;   // the grammar begins with the token
  std::string only_after;             // not empty: nothing counts before this text ("</think>")
  [[nodiscard]] bool empty() const { return words.empty() && patterns.empty() && tokens.empty(); }
};

/// The texts of a vocabulary as a trie, made once per vocabulary and shared by all grammars. Immutable, thread-safe;
/// refers to `vocab`.
class GrammarVocab {
 public:
  explicit GrammarVocab(const llama::Vocab& vocab);
  ~GrammarVocab();
  GrammarVocab(const GrammarVocab&) = delete;
  GrammarVocab& operator=(const GrammarVocab&) = delete;

  [[nodiscard]] const llama::Vocab& vocab() const { return vocab_; }
  [[nodiscard]] const TokenTrie& trie() const { return *trie_; }

 private:
  const llama::Vocab& vocab_;
  std::unique_ptr<const TokenTrie> trie_;
};

/// A grammar for one vocabulary, with the masks that were computed so far; shared by all requests that use it.
/// Thread-safe (one lock for the caches).
class CompiledGrammar {
 public:
  CompiledGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const GrammarVocab> vocab);
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  /// Computes masks ahead, for at most about `budget_ms`, so that the first tokens of an answer need not wait for them.
  void warm_up(int budget_ms) const;
  [[nodiscard]] const Grammar& grammar() const { return *grammar_; }
  [[nodiscard]] const GrammarVocab& vocab() const { return *vocab_; }
  [[nodiscard]] MaskEngine& engine() const { return *engine_; }

 private:
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const GrammarVocab> vocab_;
  std::unique_ptr<MaskEngine> engine_;
};

/// The place of one answer in its grammar: the mask of the next token. Thread-compatible; copies go their own way.
class GrammarMask final : public llama::TokenMask {
 public:
  /// With triggers the grammar is lazy: everything is allowed until one is met. Throws Error(invalid_argument) for a
  /// pattern that does not compile (naming the offset) or a token outside the vocabulary.
  explicit GrammarMask(std::shared_ptr<const CompiledGrammar> grammar, const LazyTriggers& triggers = {});
  GrammarMask(const GrammarMask& other);
  GrammarMask& operator=(const GrammarMask&) = delete;
  ~GrammarMask() override;

  // llama::TokenMask. Neither throws: what cannot go on ends in a mask without a token, and failure() says why.
  bool fill(std::span<std::uint32_t> words) override;
  void accept(llama::Token token) override;
  [[nodiscard]] std::string failure() const override;

  /// Advances by text that stands before the first generated token (a generation prompt). False, with nothing changed,
  /// when the grammar does not allow it.
  bool feed(std::string_view text);
  /// Whether the output may end here; true while a lazy grammar waits.
  [[nodiscard]] bool may_end() const;
  /// Whether a lazy grammar still waits for its trigger.
  [[nodiscard]] bool waiting() const { return trigger_ != nullptr; }

 private:
  void accept_token(llama::Token token);
  void fail(const std::string& reason);

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::unique_ptr<Matcher> matcher_;
  std::unique_ptr<Trigger> trigger_;  // null once the grammar is active
  std::string failure_;
};

}  // namespace common::grammar
