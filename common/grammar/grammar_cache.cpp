#include "common/grammar/grammar_cache.h"

#include <algorithm>

#include "common/grammar/can_begin.h"

namespace common::grammar {
namespace {

constexpr std::size_t kKept = 16;
constexpr int kWarmUpMs = 500;

}  // namespace

std::shared_ptr<const CompiledGrammar> GrammarCache::get(const std::string& gbnf) {
  std::shared_ptr<const GrammarVocab> vocab;
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(recently_used_.begin(), recently_used_.end(),
                                    [&](const auto& grammar) { return grammar->grammar().text() == gbnf; });
    if (known != recently_used_.end()) {
      recently_used_.splice(recently_used_.begin(), recently_used_, known);
      return recently_used_.front();
    }
    if (shared_vocab_ == nullptr) shared_vocab_ = std::make_shared<const GrammarVocab>(vocab_);
    vocab = shared_vocab_;
  }
  // Outside the lock: a large grammar must not hold up requests with others.
  auto grammar = std::make_shared<const CompiledGrammar>(Grammar::parse(gbnf, &vocab_), vocab);
  grammar->warm_up(kWarmUpMs);
  GrammarMask start(grammar);
  check_can_begin(start, vocab_);
  const std::lock_guard lock(mutex_);
  recently_used_.push_front(grammar);
  if (recently_used_.size() > kKept) recently_used_.pop_back();
  return grammar;
}

}  // namespace common::grammar
