#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "llama/types.h"

namespace llama {

/// The last `capacity` tokens. Memory grows with the tokens, not with a capacity that a request may set to billions.
class TokenWindow {
 public:
  explicit TokenWindow(std::size_t capacity) : capacity_(capacity) {
    constexpr std::size_t kReserved = 4096;
    ring_.reserve(std::min(capacity, kReserved));
  }

  /// Pre: capacity > 0. Adds a token; returns the one that fell out, or kNoToken.
  Token push(Token token) {
    if (ring_.size() < capacity_) {
      ring_.push_back(token);
      return kNoToken;
    }
    const Token oldest = ring_[begin_];
    ring_[begin_] = token;
    begin_ = (begin_ + 1) % capacity_;
    return oldest;
  }

  [[nodiscard]] std::size_t size() const { return ring_.size(); }
  /// Pre: back < size(). 0 is the newest token.
  [[nodiscard]] Token newest(std::size_t back) const {
    const std::size_t i = begin_ + ring_.size() - 1 - back;
    return ring_[i < ring_.size() ? i : i - ring_.size()];
  }

 private:
  std::size_t capacity_;
  std::size_t begin_ = 0;  // of the oldest, once the ring is full
  std::vector<Token> ring_;
};

}  // namespace llama
