#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "common/grammar/grammar_mask.h"

namespace common::grammar {

/// The grammars that were used last for one vocabulary, compiled and warmed up. Thread-safe.
class GrammarCache {
 public:
  /// `vocab` must outlive the cache. Nothing is computed before the first grammar is asked for.
  explicit GrammarCache(const llama::Vocab& vocab) : vocab_(vocab) {}

  /// The compiled form of a GBNF text; throws as Grammar::parse().
  [[nodiscard]] std::shared_ptr<const CompiledGrammar> get(const std::string& gbnf);
  /// The same as a part of `frame`; as Grammar::parse_framed().
  [[nodiscard]] std::shared_ptr<const CompiledGrammar> get_framed(const std::string& gbnf, const std::string& frame);

 private:
  using Parse = std::function<std::shared_ptr<const Grammar>()>;
  std::shared_ptr<const CompiledGrammar> find_or_make(const std::string& text, const Parse& parse);

  const llama::Vocab& vocab_;
  std::mutex mutex_;
  std::shared_ptr<const GrammarVocab> shared_vocab_;                 // made by the first get()
  std::list<std::shared_ptr<const CompiledGrammar>> recently_used_;  // the last used first
};

}  // namespace common::grammar
