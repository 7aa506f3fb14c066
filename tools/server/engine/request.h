#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "ggml/error.h"
#include "llama/sampler.h"
#include "llama/sampling.h"
#include "llama/types.h"

namespace server {

using llama::Token;

/// What the engine has to do for one HTTP request, checked by the API layer except for what only the engine knows
/// (slots, context).
struct GenerateRequest {
  std::vector<Token> prompt;  // every id is inside the vocabulary
  /// Of a text that is too long for any context, and was not tokenised: so many tokens it has, if not more; `prompt` is
  /// empty then.
  std::size_t prompt_at_least = 0;
  llama::SamplingParams sampling;
  int n_predict = -1;     // -1: until the context is full; 0: only evaluate the prompt
  int n_completions = 1;  // answers to the same prompt; the prompt is evaluated once
  std::vector<std::string> stop;
  int slot = -1;  // -1: the engine chooses
  bool cache_prompt = true;
  int n_keep = 0;                     // context shift: tokens kept at the start, -1 the whole prompt
  int n_discard = 0;                  // context shift: tokens dropped, 0 half of the rest
  std::vector<float> adapter_scales;  // of the model's LoRA adapters by number, one each
  int n_indent = 0;                   // > 0: stop at a new line that is indented less
  std::int64_t t_max_predict_ms = -1;
  bool report_progress = false;
  bool show_special = false;        // control tokens appear in the text
  std::vector<Token> shown_tokens;  // those that do although show_special is off; ascending
  std::string grammar;              // what make_mask enforces, as GBNF; for the settings in the answer
  /// Makes the mask of one completion (its grammar, its limit of reasoning); empty: any token. The engine's loop calls
  /// it.
  std::function<std::unique_ptr<llama::TokenMask>()> make_mask;
};

struct Timings {
  int cache_n = 0;   // prompt tokens reused
  int prompt_n = 0;  // prompt tokens evaluated
  double prompt_ms = 0;
  int predicted_n = 0;
  double predicted_ms = 0;
  int n_ctx = 0;
  int n_past = 0;
};

enum class StopType : std::uint8_t { none, eos, limit, word };

/// One generated token and the text that may be sent now (empty while a character or a possible stop string is
/// incomplete).
struct TokenEvent {
  std::string text;
  Token token = -1;
  llama::SampledToken sampled;  // with its alternatives, when asked
  int slot = -1;
  Timings timings;
  bool incomplete_character = false;  // the token ended inside a character: native streams skip the event
};

/// The prompt's progress, one per step that evaluated a part of it.
struct ProgressEvent {
  int slot = -1;
  int total = 0, cache = 0, processed = 0;
  double time_ms = 0;
};

/// The end of an answer.
struct FinalEvent {
  std::string text;  // what was held back and is part of the answer after all
  StopType stop = StopType::none;
  std::string stopping_word;
  bool truncated = false;  // the context was full
  bool has_new_line = false;
  int slot = -1;
  std::uint32_t seed = 0;  // the seed in use
  int n_prompt = 0;        // prompt tokens, reused ones included
  int n_cached = 0;        // tokens now in the slot
  Timings timings;
};

/// The request failed; nothing follows.
struct ErrorEvent {
  ggml::Error error;
  int n_prompt = 0;  // for exceeds_limit: the prompt's tokens and the slot's context
  int n_ctx = 0;
};

using Event = std::variant<TokenEvent, ProgressEvent, FinalEvent, ErrorEvent>;

}  // namespace server
