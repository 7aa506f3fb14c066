#include "sample/breakers.h"

#include <algorithm>

#include "llama/vocab.h"

namespace llama {

namespace {

constexpr std::size_t kBreakerBytes = 40;
constexpr std::size_t kTailTokens = 20;

/// At most `bytes` bytes, cut before a character that does not fit.
std::string_view shortened(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0u) == 0x80u) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

Breakers::Breakers(std::span<const std::string> texts, const Vocab& vocab) : vocab_(vocab) {
  nodes_.emplace_back();
  for (const std::string& text : texts) add(shortened(text, kBreakerBytes));
  if (texts_.empty()) return;
  link();
  read_vocabulary();
}

void Breakers::add(std::string_view text) {
  if (text.empty()) return;
  const auto breaker = static_cast<std::uint32_t>(texts_.size());
  std::uint32_t at = 0;
  std::vector<std::uint32_t> path;
  for (const char c : text) {
    const auto [it, is_new] =
        nodes_[at].next.try_emplace(static_cast<std::uint8_t>(c), static_cast<std::uint32_t>(nodes_.size()));
    at = it->second;
    if (is_new) nodes_.emplace_back();
    path.push_back(at);
  }
  if (nodes_[at].holds_breaker) return;  // given twice
  nodes_[at].holds_breaker = true;
  path.pop_back();
  for (const std::uint32_t node : path) nodes_[node].breakers.push_back(breaker);
  texts_.emplace_back(text);
}

void Breakers::link() {
  std::vector<std::uint32_t> order{0};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint32_t node = order[i];
    for (const auto& [byte, child] : nodes_[node].next) {
      nodes_[child].fallback = node == 0 ? 0 : step(nodes_[node].fallback, byte);
      nodes_[child].holds_breaker = nodes_[child].holds_breaker || nodes_[nodes_[child].fallback].holds_breaker;
      order.push_back(child);
      if (node == 0) first_[byte] = child;
    }
  }
}

std::uint32_t Breakers::step(std::uint32_t node, std::uint8_t byte) const {
  while (node != 0) {
    const auto it = nodes_[node].next.find(byte);
    if (it != nodes_[node].next.end()) return it->second;
    node = nodes_[node].fallback;
  }
  return first_[byte];
}

void Breakers::read_vocabulary() {
  for (Token token = 0; token < vocab_.n_tokens(); ++token) {
    Head head{token, 0, false};
    for (const char c : vocab_.piece(token, SpecialText::show)) {
      head.node = step(head.node, static_cast<std::uint8_t>(c));
      head.holds_breaker = head.holds_breaker || nodes_[head.node].holds_breaker;
    }
    if (head.node == 0 && !head.holds_breaker) continue;
    heads_.push_back(head);
    for (std::uint32_t node = head.node; node != 0 && !nodes_[node].is_used; node = nodes_[node].fallback)
      nodes_[node].is_used = true;
  }
  std::vector<std::pair<std::uint32_t, std::size_t>> level{{0, 0}};  // node, depth
  for (std::size_t i = 0; i < level.size(); ++i) {
    const auto [node, depth] = level[i];
    if (nodes_[node].is_used) add_tails(nodes_[node], depth);
    for (const auto& [byte, child] : nodes_[node].next) level.emplace_back(child, depth + 1);
  }
}

void Breakers::add_tails(Node& node, std::size_t depth) {
  node.first_tail = static_cast<std::uint32_t>(tails_.size());
  node.n_tails = static_cast<std::uint32_t>(node.breakers.size());
  for (const std::uint32_t breaker : node.breakers) {
    std::vector<Token> tokens = vocab_.tokenize(std::string_view(texts_[breaker]).substr(depth), {});
    if (tokens.size() > kTailTokens) tokens.resize(kTailTokens);
    tails_.push_back({std::move(tokens), breaker});
  }
  std::sort(tails_.begin() + node.first_tail, tails_.end(),
            [](const Tail& a, const Tail& b) { return a.tokens < b.tokens; });
}

const Breakers::Head* Breakers::head_of(Token token) const {
  const auto it =
      std::lower_bound(heads_.begin(), heads_.end(), token, [](const Head& h, Token t) { return h.token < t; });
  return it == heads_.end() || it->token != token ? nullptr : &*it;
}

/// A token that holds a whole breaker is that breaker's end, whatever it ends with.
bool Breakers::counts(const Tail& tail, const Head& head) const {
  return !head.holds_breaker ||
         vocab_.piece(head.token, SpecialText::show).find(texts_[tail.breaker]) == std::string_view::npos;
}

bool Breakers::breaks(Token token) const {
  const Head* head = head_of(token);
  if (head == nullptr) return false;
  if (head->holds_breaker) return true;
  for (std::uint32_t at = head->node; at != 0; at = nodes_[at].fallback) {
    const Node& node = nodes_[at];
    // A rest without any token.
    if (node.n_tails > 0 && tails_[node.first_tail].tokens.empty()) return true;
  }
  return false;
}

std::optional<std::size_t> Breakers::tail_behind(std::span<const Token> recent, std::size_t at) const {
  const Head* head = head_of(recent[at]);
  if (head == nullptr) return std::nullopt;
  std::optional<std::size_t> longest;
  if (head->holds_breaker) longest = 0;
  for (std::uint32_t node = head->node; node != 0; node = nodes_[node].fallback) {
    const auto length = longest_tail(nodes_[node], *head, recent, at);
    if (length.has_value() && length.value() >= longest.value_or(0)) longest = length;
  }
  return longest;
}

/// Narrows the node's tails down to those that begin as the text goes on, token by token.
std::optional<std::size_t> Breakers::longest_tail(const Node& node, const Head& head, std::span<const Token> recent,
                                                  std::size_t at) const {
  std::optional<std::size_t> longest;
  auto lo = tails_.begin() + node.first_tail;
  auto hi = lo + node.n_tails;
  for (std::size_t depth = 0; lo != hi; ++depth) {
    for (; lo != hi && lo->tokens.size() == depth; ++lo) {
      if (counts(*lo, head)) longest = depth;
    }
    if (depth == at) break;  // no newer token
    const Token token = recent[at - 1 - depth];
    lo = std::lower_bound(lo, hi, token, [depth](const Tail& tail, Token t) { return tail.tokens[depth] < t; });
    hi = std::upper_bound(lo, hi, token, [depth](Token t, const Tail& tail) { return t < tail.tokens[depth]; });
  }
  return longest;
}

}  // namespace llama
