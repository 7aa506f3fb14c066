#include "sample/dry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "llama/vocab.h"

namespace llama {

namespace {

constexpr double kMaxExponent = 88.7228391;  // exp() of more overflows a float

}  // namespace

Dry::Dry(const SamplingParams& params, const Vocab& vocab, std::size_t last_n)
    : multiplier_(params.dry_multiplier),
      base_(params.dry_base),
      allowed_length_(params.dry_allowed_length),
      window_(last_n),
      breakers_(params.dry_breakers, vocab) {}

std::int64_t Dry::repeat_limit() const {
  const std::size_t n = recent_.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (const auto tail = breakers_.tail_behind(recent_, i)) return static_cast<std::int64_t>(i - *tail);
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
    if (breakers_.breaks(match.token)) continue;
    const std::int64_t exponent = std::min(match.length - allowed_length_, max_exponent);
    penalties_.push_back({match.token, multiplier_ * std::pow(base_, static_cast<float>(exponent))});
  }
  return penalties_;
}

}  // namespace llama
