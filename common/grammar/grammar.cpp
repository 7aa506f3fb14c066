#include "common/grammar/grammar.h"

#include <algorithm>

#include "common/grammar/automaton.h"
#include "common/grammar/syntax.h"

#include "ggml/error.h"

namespace common::grammar {

namespace {

void shift_rules(Alternatives& body, int by) {
  for (Sequence& sequence : body) {
    for (Item& item : sequence) {
      if (item.kind == ItemKind::rule) item.rule += by;
      shift_rules(item.body, by);
    }
  }
}

}  // namespace

std::shared_ptr<const Grammar> Grammar::parse(std::string_view gbnf, const llama::Vocab* vocab) {
  const Syntax syntax = parse_gbnf(gbnf, vocab);
  return std::make_shared<const Grammar>(std::string(gbnf), std::make_unique<const Automaton>(syntax));
}

std::string Grammar::framed_text(std::string_view gbnf, std::string_view frame) {
  return std::string(frame).append(1, '\0').append(gbnf);
}

std::shared_ptr<const Grammar> Grammar::parse_framed(std::string_view gbnf, std::string_view frame,
                                                     const llama::Vocab* vocab) {
  Syntax inner = parse_gbnf(gbnf, vocab);
  Syntax syntax = parse_gbnf(frame, vocab);
  const int shift = static_cast<int>(syntax.rules.size());
  const auto place =
      std::find_if(syntax.rules.begin(), syntax.rules.end(), [](const Rule& rule) { return rule.name == kFramed; });
  if (place == syntax.rules.end())
    throw ggml::Error(ggml::ErrorCode::internal, "grammar: a frame without a place for what it frames");
  Item item;
  item.kind = ItemKind::rule;
  item.rule = inner.root + shift;
  place->body = {{std::move(item)}};
  for (Rule& rule : inner.rules) {
    shift_rules(rule.body, shift);
    syntax.rules.push_back(std::move(rule));
  }
  check_left_recursion(syntax);
  return std::make_shared<const Grammar>(framed_text(gbnf, frame), std::make_unique<const Automaton>(syntax));
}

Grammar::Grammar(std::string text, std::unique_ptr<const Automaton> automaton)
    : text_(std::move(text)), automaton_(std::move(automaton)) {}

Grammar::~Grammar() = default;

}  // namespace common::grammar
