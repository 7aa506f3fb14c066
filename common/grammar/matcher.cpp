#include "common/grammar/matcher.h"

#include <algorithm>

#include "llama/vocab.h"

namespace common::grammar {
namespace {

constexpr std::size_t kMaxStacks = 1024;  // readings of a text at one time

void set_bit(std::span<std::uint32_t> words, llama::Token token, bool value) {
  std::uint32_t& word = words[static_cast<std::size_t>(token) / 32];
  const std::uint32_t bit = 1u << (token % 32);
  word = value ? word | bit : word & ~bit;
}

bool is_set(std::span<const std::uint32_t> words, llama::Token token) {
  return (words[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1u) != 0;
}

}  // namespace

Matcher::Matcher(MaskEngine& engine) : engine_(&engine), pool_(engine.states()) {
  const std::lock_guard lock(engine_->mutex());
  StateTable& states = engine_->states();
  stacks_.push_back(pool_.push(states.start(states.automaton().root()), kBottom));
}

std::vector<StackId> Matcher::after_text(std::string_view bytes) {
  const Automaton& automaton = engine_->states().automaton();
  std::vector<StackId> now = stacks_;
  std::vector<StackId> next;
  for (const char byte : bytes) {
    const std::uint8_t byte_class = automaton.class_of(static_cast<std::uint8_t>(byte));
    next.clear();
    for (const StackId stack : now) pool_.step(stack, byte_class, next);
    settle(next, kMaxStacks);
    now.swap(next);
    if (now.empty()) break;
  }
  return now;
}

bool Matcher::accept_text(std::string_view bytes) {
  const std::lock_guard lock(engine_->mutex());
  std::vector<StackId> after = after_text(bytes);
  if (after.empty()) return false;
  stacks_ = std::move(after);
  return true;
}

bool Matcher::accept_token(llama::Token token, const llama::Vocab& vocab) {
  const std::lock_guard lock(engine_->mutex());
  std::vector<StackId> after;
  if (vocab.is_eog(token)) {
    if (ends_here()) after.push_back(kBottom);
  } else {
    const std::string_view piece = vocab.piece(token, llama::SpecialText::show);
    if (!piece.empty() && piece.front() != '\0') after = after_text(piece);
  }
  const bool in_trie = is_set(engine_->trie().all(), token);
  for (const StackId stack : stacks_) {
    for (const StackId id : pool_.closure(stack)) {
      if (id == kBottom) continue;
      for (const StateTable::TokenEdge& edge : engine_->states().expanded(pool_.top(id)).tokens) {
        const bool fits = edge.negated ? edge.token != token && in_trie : edge.token == token;
        if (fits) after.push_back(pool_.push(edge.after, pool_.parent(id)));
      }
    }
  }
  settle(after, kMaxStacks);
  if (after.empty()) return false;
  stacks_ = std::move(after);
  return true;
}

bool Matcher::ends_here() {
  return std::any_of(stacks_.begin(), stacks_.end(), [&](StackId stack) {
    const std::span<const StackId> all = pool_.closure(stack);
    return std::find(all.begin(), all.end(), kBottom) != all.end();
  });
}

bool Matcher::may_end() {
  const std::lock_guard lock(engine_->mutex());
  return ends_here();
}

void Matcher::add_token_elements(std::span<std::uint32_t> words, const llama::Vocab& vocab) {
  for (const StackId stack : stacks_) {
    for (const StackId id : pool_.closure(stack)) {
      if (id == kBottom || !engine_->states().state(pool_.top(id)).has_tokens) continue;
      for (const StateTable::TokenEdge& edge : engine_->states().expanded(pool_.top(id)).tokens) {
        if (!edge.negated) {
          if (vocab.contains(edge.token)) set_bit(words, edge.token, true);
          continue;
        }
        const bool was_set = vocab.contains(edge.token) && is_set(words, edge.token);
        const std::span<const std::uint32_t> all = engine_->trie().all();
        for (std::size_t w = 0; w < words.size(); ++w) words[w] |= all[w];
        if (vocab.contains(edge.token)) set_bit(words, edge.token, was_set);
      }
    }
  }
}

void Matcher::fill(std::span<std::uint32_t> words, const llama::Vocab& vocab) {
  const std::lock_guard lock(engine_->mutex());
  engine_->trim();
  std::fill(words.begin(), words.end(), 0u);
  for (const StackId stack : stacks_) engine_->add_allowed(pool_, stack, words);
  add_token_elements(words, vocab);
  if (ends_here()) {
    for (const llama::Token token : vocab.eog_tokens()) set_bit(words, token, true);
  }
}

}  // namespace common::grammar
