#include "common/grammar/grammar.h"

#include "common/grammar/automaton.h"
#include "common/grammar/syntax.h"

namespace common::grammar {

std::shared_ptr<const Grammar> Grammar::parse(std::string_view gbnf, const llama::Vocab* vocab) {
  const Syntax syntax = parse_gbnf(gbnf, vocab);
  return std::make_shared<const Grammar>(std::string(gbnf), std::make_unique<const Automaton>(syntax));
}

Grammar::Grammar(std::string text, std::unique_ptr<const Automaton> automaton)
    : text_(std::move(text)), automaton_(std::move(automaton)) {}

Grammar::~Grammar() = default;

}  // namespace common::grammar
