#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llama/sampling.h"
#include "sample/breakers.h"
#include "sample/token_window.h"

namespace llama {

class Vocab;

/// The DRY penalty ("Don't Repeat Yourself", p-e-w, 2024): a token that would prolong a sequence that stood in the text
/// before is the less likely the longer that sequence is. Sequence breakers end it. Thread-compatible.
class Dry {
 public:
  struct Penalty {
    Token token;
    float amount;  // to be subtracted from the logit
  };

  /// Pre: is_on(params); last_n > 0 is params.dry_penalty_last_n with the context's size for -1. Reads every token of
  /// the vocabulary.
  Dry(const SamplingParams& params, const Vocab& vocab, std::size_t last_n);
  static bool is_on(const SamplingParams& params) {
    return params.dry_multiplier != 0.0f && params.dry_base >= 1.0f && params.dry_penalty_last_n != 0;
  }

  void accept(Token token) { window_.push(token); }
  /// The penalties of the next token, each token once, ascending. Linear in the window; valid until the next call.
  std::span<const Penalty> penalties();

 private:
  struct Match {
    Token token;
    std::int64_t length;
  };

  /// How many of the newest tokens lie behind the newest breaker.
  [[nodiscard]] std::int64_t repeat_limit() const;
  void find_matches(std::int64_t limit);

  float multiplier_, base_;
  std::int64_t allowed_length_;
  TokenWindow window_;
  Breakers breakers_;
  std::vector<Token> recent_;         // the window, newest first
  std::vector<std::int64_t> suffix_;  // [window] longest common suffix of the text and the text up to there
  std::vector<Match> matches_;
  std::vector<Penalty> penalties_;
};

}  // namespace llama
