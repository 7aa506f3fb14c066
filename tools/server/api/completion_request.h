#pragma once

#include <string>
#include <vector>

#include "api/fields.h"
#include "api/service.h"
#include "common/chat/reply_parser.h"
#include "engine/request.h"

namespace server {

/// How the answers to a request are to be written, beside what the engine has to do.
struct AnswerOptions {
  bool stream = false;
  bool include_usage = false;
  bool return_tokens = false;
  bool timings_per_token = false;
  bool return_progress = false;
  bool report_probabilities = false;
  bool post_sampling_probs = false;
  bool report_alternatives = true;  // beside the chosen token's own probability
  bool verbose = false;             // OpenAI's answers hold the native one, under __verbose
  int sse_ping_interval_s = 30;
  // Chats: how answers are read; for "generation_settings".
  std::string chat_format = "Content-only";
  std::string reasoning_format = "none";
  std::string generation_prompt;
  bool grammar_lazy = false;
  std::vector<std::string> response_fields;
};

/// A request of any completion endpoint, checked: one engine request per prompt.
struct CompletionRequest {
  std::vector<GenerateRequest> prompts;
  bool prompt_was_list = false;  // several prompts: native answers are an array
  AnswerOptions options;
  common::chat::ReplyReading reply{};  // chats: how their answers are read; no format otherwise
  [[nodiscard]] int n_answers() const;
};

/// Reads the fields of 4.2 that all completion endpoints share; `prompts` holds one entry without tokens: the pattern
/// for set_prompts(). Throws Error (invalid_argument for a bad field, unsupported for one that this version cannot
/// honour, with the reason).
[[nodiscard]] CompletionRequest read_completion_fields(const Fields& fields, const Service& service);

/// What only the endpoints for text refuse, the native ones and OpenAI's; `request` is what read_completion_fields()
/// gave. Throws Error(invalid_argument).
void check_text_fields(const Fields& fields);
void check_openai_text_fields(const Fields& fields, const CompletionRequest& request);

/// The prompts of field `name` in all of its forms. Throws Error(invalid_argument).
struct Prompts {
  struct Prompt {
    std::vector<Token> tokens;
    std::size_t at_least = 0;  // of one that is longer than any context, and was not tokenised
  };
  std::vector<Prompt> prompts;
  bool was_list = false;
};
[[nodiscard]] Prompts read_prompts(const Fields& fields, std::string_view name, const Service& service);
/// A string, or an array of token ids and strings. `name` is the field's, for the errors.
[[nodiscard]] std::vector<Token> tokenize_mixed(std::string_view name, const Json& prompt, const llama::Vocab& vocab,
                                                llama::TokenizeOptions options);

/// A text as a prompt with special tokens in it; `name` is the field's that it was made of. Throws
/// Error(invalid_argument).
[[nodiscard]] Prompts::Prompt tokenize_prompt(std::string_view name, std::string_view text, const Service& service);

/// Replaces the pattern by one GenerateRequest per prompt.
void set_prompts(CompletionRequest& request, Prompts prompts);

}  // namespace server
