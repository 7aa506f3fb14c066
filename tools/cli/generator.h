#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/log/timings.h"
#include "llama/context.h"
#include "llama/sampler.h"

namespace cli {

enum class Ending : std::uint8_t {
  end_of_generation,  // the model ended its turn
  limit,              // n_predict, or the context is full
  reverse_prompt,     // a string of -r was met; it is part of the text
  interrupted         // the user pressed Ctrl-C
};

/// One sequence and what it holds: evaluates prompts, reusing what the cache has of them, and generates text.
/// Thread-compatible.
class Generator {
 public:
  /// `interrupted` is asked between steps and inside them.
  Generator(llama::Context& context, const llama::SamplingParams& sampling, bool (*interrupted)());

  /// Whether the context holds `tokens` and one more.
  [[nodiscard]] bool fits(const std::vector<llama::Token>& tokens) const {
    return static_cast<int>(tokens.size()) < context_.params().n_ctx;
  }
  /// Throws Error(exceeds_limit) when they do not fit.
  void check_fits(const std::vector<llama::Token>& tokens) const;
  /// Makes the sequence hold `tokens` (all but the last are then in the cache). Throws what check_fits() throws,
  /// and Error(invalid_argument) when there are none.
  void set_prompt(const std::vector<llama::Token>& tokens);
  /// Generates up to `n_predict` tokens (negative: until the end), handing out text as soon as its characters are
  /// whole.
  Ending generate(int n_predict, const std::vector<std::string>& reverse_prompts,
                  const std::function<void(std::string_view)>& on_text);
  /// The tokens of prompt and answers so far.
  [[nodiscard]] const std::vector<llama::Token>& tokens() const { return tokens_; }
  [[nodiscard]] const common::RunTimings& timings() const { return timings_; }
  void show_special(bool show) { show_special_ = show; }
  /// Special tokens (ascending) whose text is handed out all the same: the marks of a chat format.
  void show_tokens(std::vector<llama::Token> tokens) { shown_tokens_ = std::move(tokens); }
  /// What generate() does when the context is full: it ends, or with a shift drops the older half of the tokens behind
  /// the first `n_keep` (-1: behind the prompt) and goes on. An n_predict of -2 ends there all the same.
  void shift_context(int n_keep) { n_keep_ = n_keep; }
  /// Makes the mask of each answer from now on; empty: any token.
  using MakeMask = std::function<std::unique_ptr<llama::TokenMask>()>;
  void follow(MakeMask make_mask) { make_mask_ = std::move(make_mask); }

 private:
  llama::Token next_token();
  [[nodiscard]] bool is_shown(llama::Token token) const;
  void shift();

  llama::Context& context_;
  MakeMask make_mask_;
  std::unique_ptr<llama::TokenMask> mask_;  // of the answer being written; null: any token
  llama::Sampler sampler_;                  // of the whole conversation
  bool (*interrupted_)();
  llama::SeqId seq_;
  std::vector<llama::Token> tokens_;  // of the conversation
  std::size_t n_cached_ = 0;          // of them in the cache
  std::size_t n_prompt_ = 0;          // of them given to set_prompt()
  std::optional<int> n_keep_;         // nothing: no context shift
  common::RunTimings timings_;
  bool show_special_ = false;
  std::vector<llama::Token> shown_tokens_;
};

}  // namespace cli
