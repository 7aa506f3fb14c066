#include "sample/dry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "llama/vocab.h"

namespace llama {

namespace {

constexpr std::size_t kBreakerBytes = 40;
constexpr std::size_t kTailTokens = 20;
constexpr double kMaxExponent = 88.7228391;  // exp() of more overflows a float

/// At most `bytes` bytes, cut before a character that does not fit.
std::string_view shortened(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0u) == 0x80u) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

Dry::Dry(const SamplingParams& params, const Vocab& vocab, std::size_t last_n)
    : multiplier_(params.dry_multiplier),
      base_(params.dry_base),
      allowed_length_(params.dry_allowed_length),
      window_(last_n) {
  for (const std::string& breaker : params.dry_breakers) add_breaker(breaker, vocab);
  const auto before = [](const Head& a, const Head& b) {
    return a.token < b.token || (a.token == b.token && a.tail_length > b.tail_length);
  };
  std::stable_sort(heads_.begin(), heads_.end(), before);
}

void Dry::add_breaker(const std::string& breaker, const Vocab& vocab) {
  const std::string_view text = shortened(breaker, kBreakerBytes);
  if (text.empty()) return;
  // Tokens that end with the same part of the breaker share its tail.
  std::vector<std::vector<Token>> tails(text.size());
  std::vector<bool> known(text.size(), false);
  for (Token token = 0; token < vocab.n_tokens(); ++token) {
    const std::string_view piece = vocab.piece(token, SpecialText::show);
    if (piece.find(text) != std::string_view::npos) {
      add_head(token, {});
      continue;
    }
    for (std::size_t n = 1; n < text.size() && n <= piece.size(); ++n) {
      if (!piece.ends_with(text.substr(0, n))) continue;
      if (!known[n]) {
        tails[n] = vocab.tokenize(text.substr(n), {});
        if (tails[n].size() > kTailTokens) tails[n].resize(kTailTokens);
        known[n] = true;
      }
      add_head(token, tails[n]);
    }
  }
}

void Dry::add_head(Token token, std::span<const Token> tail) {
  heads_.push_back({token, static_cast<std::uint32_t>(tails_.size()), static_cast<std::uint32_t>(tail.size())});
  tails_.insert(tails_.end(), tail.begin(), tail.end());
}

std::span<const Dry::Head> Dry::heads_of(Token token) const {
  const auto first =
      std::lower_bound(heads_.begin(), heads_.end(), token, [](const Head& h, Token t) { return h.token < t; });
  auto last = first;
  while (last != heads_.end() && last->token == token) ++last;
  return {first, last};
}

bool Dry::breaks(Token token) const {
  const std::span<const Head> heads = heads_of(token);
  return !heads.empty() && heads.back().tail_length == 0;
}

std::int64_t Dry::repeat_limit() const {
  const std::size_t n = recent_.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (const Head& head : heads_of(recent_[i])) {
      if (head.tail_length > i) continue;
      bool equal = true;
      for (std::size_t k = 0; k < head.tail_length && equal; ++k)
        equal = tails_[head.tail_begin + k] == recent_[i - 1 - k];
      if (equal) return static_cast<std::int64_t>(i - head.tail_length);
    }
  }
  return static_cast<std::int64_t>(n);
}

/// Main and Lorentz' Z algorithm on the reversed window.
void Dry::find_matches(std::int64_t limit) {
  const auto n = static_cast<std::int64_t>(recent_.size());
  const auto at = [this](std::int64_t i) { return recent_[static_cast<std::size_t>(i)]; };
  suffix_.assign(recent_.size(), 0);
  std::int64_t left = 0, right = 0;  // the match that reaches furthest: [left, right)
  for (std::int64_t i = 1; i < n; ++i) {
    std::int64_t length = i < right ? std::min(right - i, suffix_[static_cast<std::size_t>(i - left)]) : 0;
    while (i + length < n && at(length) == at(i + length)) ++length;
    suffix_[static_cast<std::size_t>(i)] = length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    length = std::min(length, limit);
    if (length >= allowed_length_) matches_.push_back({at(i - 1), length});
  }
}

std::span<const Dry::Penalty> Dry::penalties() {
  matches_.clear();
  penalties_.clear();
  recent_.clear();
  const std::size_t n = window_.size();
  if (static_cast<std::int64_t>(n) <= allowed_length_) return {};
  for (std::size_t i = 0; i < n; ++i) recent_.push_back(window_.newest(i));
  const std::int64_t limit = repeat_limit();
  if (limit < allowed_length_) return {};
  find_matches(limit);
  std::sort(matches_.begin(), matches_.end(), [](const Match& a, const Match& b) {
    return a.token < b.token || (a.token == b.token && a.length > b.length);
  });
  constexpr float kSmallestGrowth = 1.000001f;
  const std::int64_t max_exponent = base_ > kSmallestGrowth
                                        ? static_cast<std::int64_t>(kMaxExponent / std::log(static_cast<double>(base_)))
                                        : std::numeric_limits<std::int64_t>::max();
  Token last = kNoToken;
  for (const Match& match : matches_) {
    if (match.token == last) continue;
    last = match.token;
    if (breaks(match.token)) continue;
    const std::int64_t exponent = std::min(match.length - allowed_length_, max_exponent);
    penalties_.push_back({match.token, multiplier_ * std::pow(base_, static_cast<float>(exponent))});
  }
  return penalties_;
}

}  // namespace llama
