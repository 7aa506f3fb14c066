#include "common/grammar/grammar_cache.h"

#include <algorithm>

#include "common/grammar/can_begin.h"

namespace common::grammar {
namespace {

constexpr std::size_t kKept = 16;
constexpr int kWarmUpMs = 500;

}  // namespace

std::shared_ptr<const CompiledGrammar> GrammarCache::get(const std::string& gbnf) {
  return find_or_make(gbnf, [&] { return Grammar::parse(gbnf, &vocab_); });
}

std::shared_ptr<const CompiledGrammar> GrammarCache::get_framed(const std::string& gbnf, const std::string& frame) {
  return find_or_make(Grammar::framed_text(gbnf, frame), [&] { return Grammar::parse_framed(gbnf, frame, &vocab_); });
}

std::shared_ptr<const CompiledGrammar> GrammarCache::find_or_make(const std::string& text, const Parse& parse) {
  std::shared_ptr<const GrammarVocab> vocab;
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(recently_used_.begin(), recently_used_.end(),
                                    [&](const auto& grammar) { return grammar->grammar().text() == text; });
    if (known != recently_used_.end()) {
      recently_used_.splice(recently_used_.begin(), recently_used_, known);
      return recently_used_.front();
    }
    if (shared_vocab_ == nullptr) shared_vocab_ = std::make_shared<const GrammarVocab>(vocab_);
    vocab = shared_vocab_;
  }
  // Outside the lock: a large grammar must not hold up requests with others.
  auto grammar = std::make_shared<const CompiledGrammar>(parse(), vocab);
  grammar->warm_up(kWarmUpMs);
  GrammarMask start(grammar);
  check_can_begin(start, vocab_);
  const std::lock_guard lock(mutex_);
  recently_used_.push_front(grammar);
  if (recently_used_.size() > kKept) recently_used_.pop_back();
  return grammar;
}

}  // namespace common::grammar
