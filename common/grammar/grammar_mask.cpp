#include "common/grammar/grammar_mask.h"

#include <algorithm>
#include <chrono>

#include "common/grammar/automaton.h"
#include "common/grammar/can_begin.h"
#include "common/grammar/matcher.h"
#include "common/grammar/token_trie.h"
#include "common/grammar/trigger.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/vocab.h"

namespace common::grammar {

using ggml::Error;

namespace {

std::string with_hint(const Error& error) {
  return error.message() + (error.hint().empty() ? "" : "; " + error.hint());
}

}  // namespace

GrammarVocab::GrammarVocab(const llama::Vocab& vocab)
    : vocab_(vocab), trie_(std::make_unique<const TokenTrie>(vocab)) {}

GrammarVocab::~GrammarVocab() = default;

CompiledGrammar::CompiledGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const GrammarVocab> vocab)
    : grammar_(std::move(grammar)),
      vocab_(std::move(vocab)),
      engine_(std::make_unique<MaskEngine>(grammar_->automaton(), vocab_->trie())) {}

CompiledGrammar::~CompiledGrammar() = default;

void CompiledGrammar::warm_up(int budget_ms) const {
  try {
    engine_->warm_up(std::chrono::steady_clock::now() + std::chrono::milliseconds(budget_ms));
  } catch (const Error& error) {
    // A state that no answer may ever come to is no reason to refuse the grammar.
    ggml::logf(ggml::LogLevel::debug, "grammar: warm-up stopped: %s", error.what());
  }
}

void check_can_begin(llama::TokenMask& mask, const llama::Vocab& vocab) {
  std::vector<std::uint32_t> words((static_cast<std::size_t>(vocab.n_tokens()) + 31) / 32);
  (void)mask.fill(words);
  const std::string failure = mask.failure();
  if (!failure.empty()) throw Error(ggml::ErrorCode::invalid_argument, "the answer cannot begin: " + failure);
}

GrammarMask::GrammarMask(std::shared_ptr<const CompiledGrammar> grammar, const LazyTriggers& triggers)
    : grammar_(std::move(grammar)), matcher_(std::make_unique<Matcher>(grammar_->engine())) {
  if (!triggers.empty()) trigger_ = std::make_unique<Trigger>(triggers, grammar_->vocab().vocab());
}

GrammarMask::GrammarMask(const GrammarMask& other)
    : grammar_(other.grammar_),
      matcher_(std::make_unique<Matcher>(*other.matcher_)),
      trigger_(other.trigger_ != nullptr ? std::make_unique<Trigger>(*other.trigger_) : nullptr),
      failure_(other.failure_) {}

GrammarMask::~GrammarMask() = default;

std::string GrammarMask::failure() const {
  return failure_;
}

void GrammarMask::fail(const std::string& reason) {
  failure_ = reason;
  ggml::logf(ggml::LogLevel::warn, "%s", reason.c_str());
}

bool GrammarMask::fill(std::span<std::uint32_t> words) {
  if (waiting() && failure_.empty()) return false;
  if (failure_.empty()) {
    try {
      matcher_->fill(words, grammar_->vocab().vocab());
      const bool any = std::any_of(words.begin(), words.end(), [](std::uint32_t word) { return word != 0; });
      if (!any) fail("grammar: no token of the vocabulary can continue the text");
      return true;
    } catch (const Error& error) {
      fail(with_hint(error));
    }
  }
  std::fill(words.begin(), words.end(), 0u);
  return true;
}

void GrammarMask::accept(llama::Token token) {
  const llama::Vocab& vocab = grammar_->vocab().vocab();
  if (!failure_.empty() || !vocab.contains(token)) return;
  try {
    if (trigger_ == nullptr) {
      accept_token(token);
      return;
    }
    const auto start = trigger_->add(token, vocab.piece(token, llama::SpecialText::show));
    if (!start.has_value()) return;
    trigger_.reset();
    if (!start->text.empty() && !matcher_->accept_text(start->text))
      fail("grammar: the text that starts it does not fit: \"" + start->text + "\"");
    for (const llama::Token replayed : start->tokens) {
      if (failure_.empty()) accept_token(replayed);
    }
  } catch (const Error& error) {
    fail(with_hint(error));
  }
}

void GrammarMask::accept_token(llama::Token token) {
  const llama::Vocab& vocab = grammar_->vocab().vocab();
  if (matcher_->accept_token(token, vocab)) return;
  fail(ggml::strf("grammar: it does not allow token %d (\"%s\") here", token,
                  std::string(vocab.piece(token, llama::SpecialText::show)).c_str()));
}

bool GrammarMask::feed(std::string_view text) {
  if (trigger_ == nullptr) return matcher_->accept_text(text);
  const auto start = trigger_->add_text(text);
  if (!start.has_value()) return true;
  if (!matcher_->accept_text(start->text)) return false;
  trigger_.reset();
  return true;
}

bool GrammarMask::may_end() const {
  return waiting() || matcher_->may_end();
}

}  // namespace common::grammar
