#pragma once

#include <string>

#include "api/completion_request.h"

namespace server {

/// A chat request with its template applied: the prompt's text and the engine's request.
struct ChatRequest {
  CompletionRequest completion;
  std::string prompt_text;
};

/// Reads the body of /v1/chat/completions. Throws Error: invalid_argument for malformed messages and fields (with the
/// path to the wrong part of a tool or a schema), and for image and audio parts, which nothing here can read.
[[nodiscard]] ChatRequest read_chat_request(const Fields& fields, const Service& service);

/// The prompt's text alone (/apply-template).
[[nodiscard]] std::string apply_chat_template(const Fields& fields, const Service& service);

}  // namespace server
