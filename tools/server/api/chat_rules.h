#pragma once

#include <optional>
#include <string>

#include "api/completion_request.h"
#include "common/chat/reply_grammar.h"

namespace server {

/// The fields of a chat request that say what its answer may be: tools, tool_choice, parallel_tool_calls,
/// response_format, json_schema, reasoning_format, the budget of reasoning and its message.
struct ChatRules {
  const Json* tools = nullptr;  // as given, checked; null: none
  common::chat::ToolChoice choice = common::chat::ToolChoice::automatic;
  std::string only_tool;  // the function that tool_choice names
  std::optional<bool> parallel;
  std::optional<Json> schema;  // the answer is JSON of it
  bool split_reasoning = true;
  bool parse_calls = true;
  int reasoning_budget = -1;
  std::string reasoning_budget_message;  // stands before the mark that ends reasoning beyond the budget
};

/// Throws Error(invalid_argument) naming the field.
[[nodiscard]] ChatRules read_chat_rules(const Fields& fields, const Service& service);

/// Makes the request's answers keep to the rules: how they are read, and the mask of their tokens. Throws as
/// reply_grammar().
void apply_chat_rules(const ChatRules& rules, const common::chat::ChatPrompt& prompt, const Service& service,
                      CompletionRequest& request);

}  // namespace server
