#include "api/chat_rules.h"

#include <algorithm>

#include "common/chat/messages.h"
#include "common/chat/reply_mask.h"
#include "common/grammar/can_begin.h"
#include "common/json/parse_json.h"
#include "ggml/log.h"

namespace server {

using common::chat::ToolChoice;
using ggml::Error;
using ggml::ErrorCode;

namespace {

constexpr std::size_t kMaxBudgetMessageBytes =
    64 * 1024;  // all of it is written into every answer that thinks too long

bool names_a_tool(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(), [&](const Json& tool) { return tool["function"]["name"] == name; });
}

/// The object form: {"type": "function", "function": {"name": ...}}.
std::string named_function(const Json& choice, const Json* tools) {
  const auto function = choice.find("function");
  const bool right = choice.contains("type") && choice["type"] == "function" && function != choice.end() &&
                     function->is_object() && function->contains("name") && (*function)["name"].is_string();
  if (!right) bad_field("tool_choice", "{\"type\": \"function\", \"function\": {\"name\": ...}}", choice);
  std::string name = (*function)["name"];
  if (tools == nullptr || !names_a_tool(*tools, name))
    throw Error(ErrorCode::invalid_argument, "Field 'tool_choice.function.name': no tool is called \"" + name + "\"");
  return name;
}

void read_tools(const Fields& fields, const Service& service, ChatRules& rules) {
  rules.tools = fields.find("tools");
  if (rules.tools != nullptr) {
    common::chat::check_tools(*rules.tools);
    if (rules.tools->empty()) rules.tools = nullptr;
  }
  if (rules.tools != nullptr && !service.settings.chat.jinja)
    throw Error(ErrorCode::invalid_argument, "Field 'tools': tools need --jinja",
                "start the server without --no-jinja");
  rules.parallel = service.settings.chat.parallel_tool_calls;
  if (const auto parallel = fields.boolean("parallel_tool_calls")) rules.parallel = parallel;
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_object()) {
    rules.only_tool = named_function(*choice, rules.tools);
    rules.choice = ToolChoice::required;
  } else if (*choice == "none") {
    rules.choice = ToolChoice::none;
  } else if (*choice == "required") {
    rules.choice = ToolChoice::required;
    if (rules.tools == nullptr)
      throw Error(ErrorCode::invalid_argument, "Field 'tool_choice': \"required\" needs tools");
  } else if (*choice != "auto") {
    bad_field("tool_choice", "auto, none, required or a function", *choice);
  }
}

void read_response_format(const Fields& fields, ChatRules& rules) {
  if (const Json* schema = fields.find("json_schema")) {
    if (!schema->is_object() && !schema->is_boolean()) bad_field("json_schema", "a JSON schema", *schema);
    rules.schema = *schema;
  }
  const Json* format = fields.find("response_format");
  if (format == nullptr) return;
  const auto type = format->is_object() ? format->find("type") : format->end();
  if (type == format->end() || !type->is_string()) bad_field("response_format", "an object with a type", *format);
  if (*type == "text") return;
  if (rules.schema.has_value())
    throw Error(ErrorCode::invalid_argument, "Field 'json_schema': cannot be used together with response_format");
  const Json* schema = nullptr;
  if (*type == "json_object") {
    if (const auto it = format->find("schema"); it != format->end() && !it->is_null()) schema = &*it;
    rules.schema = schema != nullptr ? *schema : Json{{"type", "object"}};
  } else if (*type == "json_schema") {
    const auto wrapped = format->find("json_schema");
    if (wrapped == format->end() || !wrapped->is_object() || !wrapped->contains("schema"))
      throw Error(ErrorCode::invalid_argument, "Field 'response_format.json_schema.schema': required");
    schema = &(*wrapped)["schema"];
    rules.schema = *schema;
  } else {
    bad_field("response_format.type", "text, json_object or json_schema", *type);
  }
  if (schema != nullptr && !schema->is_object())
    bad_field(*type == "json_object" ? "response_format.schema" : "response_format.json_schema.schema", "a JSON schema",
              *schema);
}

void read_reasoning(const Fields& fields, const Service& service, ChatRules& rules) {
  const common::ChatSettings& chat = service.settings.chat;
  rules.split_reasoning = chat.parse_replies && chat.reasoning_format != common::ReasoningFormat::none;
  rules.parse_calls = chat.parse_replies;
  if (const auto parse = fields.boolean("parse_tool_calls")) rules.parse_calls = rules.parse_calls && *parse;
  if (const auto format = fields.text("reasoning_format")) {
    const bool splits = *format == "auto" || *format == "deepseek" || *format == "deepseek-legacy";
    if (!splits && *format != "none")
      bad_field("reasoning_format", "none, auto, deepseek or deepseek-legacy", *fields.find("reasoning_format"));
    rules.split_reasoning = splits && chat.parse_replies;
  }
  rules.reasoning_budget = chat.reasoning_budget;
  for (const char* name : {"thinking_budget_tokens", "reasoning_budget_tokens"})
    fields.read(name, rules.reasoning_budget, -1, 1 << 30);
  rules.reasoning_budget_message = fields.text("reasoning_budget_message").value_or(chat.reasoning_budget_message);
  check_count("reasoning_budget_message", rules.reasoning_budget_message.size(), kMaxBudgetMessageBytes, "bytes");
}

/// --json-schema holds for answers of requests that ask for nothing else, and in the same way as a request's own.
void read_default_schema(const Fields& fields, const Service& service, ChatRules& rules) {
  const std::string& schema = service.settings.sampling.json_schema;
  const bool calls = rules.tools != nullptr && rules.choice != ToolChoice::none;
  if (schema.empty() || rules.schema.has_value() || calls || fields.find("grammar") != nullptr) return;
  rules.schema = common::parse_json(schema, "--json-schema is");
}

/// Nothing is offered to a template that neither shows tools nor calls.
bool can_call(const Service& service) {
  const common::chat::ChatTemplateCaps& caps = service.chat.caps(true);
  return caps.tools || caps.tool_calls;
}

std::shared_ptr<common::chat::ReplyRules> limits_of_reasoning(const ChatRules& rules, const Service& service,
                                                              const common::chat::ReplyReading& reading) {
  auto out = std::make_shared<common::chat::ReplyRules>();
  out->reading = reading;
  out->reading.options = {};  // what the client wants to see does not change what the model writes
  if (rules.reasoning_budget >= 0 && !reading.format->think_ends.empty()) {
    for (const std::string& end : reading.format->think_ends) {
      if (rules.reasoning_budget_message.find(end) == std::string::npos) continue;
      throw Error(ErrorCode::invalid_argument, "Field 'reasoning_budget_message': \"" + end +
                                                   "\" in it ends the thoughts; it is written behind them anyway");
    }
    out->reasoning_budget = rules.reasoning_budget;
    const std::string end = rules.reasoning_budget_message + reading.format->think_ends.front();
    out->reasoning_end = service.vocab().tokenize(end, {.add_special = false, .parse_special = true});
  }
  return out;
}

std::optional<common::chat::ReplyGrammar> grammar_of(const common::chat::ReplyFormat& format,
                                                     const common::chat::ReplyDemand& demand) {
  try {
    return common::chat::reply_grammar(format, demand);
  } catch (const Error& error) {
    if (demand.schema == nullptr) throw;  // names the tool
    throw Error(error.code(), "Field 'response_format': " + error.message(), error.hint());
  }
}

/// A grammar of the request's own, or the server's, holds the answer: what the format has around answers stays as it
/// is.
void hold_to_given_grammar(const std::string& gbnf, const common::chat::ReplyReading& reading, bool thinking,
                           const Service& service, common::chat::ReplyRules& limits) {
  if (gbnf.empty()) return;
  if (const auto frame = common::chat::answer_frame(*reading.format, thinking)) {
    limits.grammar = service.grammars->get_framed(gbnf, *frame);
    limits.grammar_opening = common::chat::opening_in_grammar(*reading.format, reading.opening);
  } else {
    limits.grammar = service.grammars->get(gbnf);
  }
}

}  // namespace

ChatRules read_chat_rules(const Fields& fields, const Service& service) {
  ChatRules rules;
  read_tools(fields, service, rules);
  read_response_format(fields, rules);
  read_reasoning(fields, service, rules);
  const Json* grammar = fields.find("grammar");
  const bool given = grammar != nullptr && !(grammar->is_string() && grammar->get<std::string>().empty());
  if (given && rules.tools != nullptr && rules.choice != ToolChoice::none)
    throw Error(ErrorCode::invalid_argument, "Field 'grammar': cannot be used together with tools");
  if (given && rules.schema.has_value())
    throw Error(ErrorCode::invalid_argument, "Field 'grammar': cannot be used together with a JSON schema");
  read_default_schema(fields, service, rules);
  const Json* logprobs = fields.find("logprobs");
  if (rules.tools != nullptr && logprobs != nullptr && *logprobs == true && fields.boolean("stream").value_or(false))
    throw Error(ErrorCode::invalid_argument, "Field 'logprobs': not available in streams with tools");
  return rules;
}

void apply_chat_rules(const ChatRules& rules, const common::chat::ChatPrompt& prompt, const Service& service,
                      CompletionRequest& request) {
  common::chat::ReplyReading& reading = request.reply;
  reading.format = prompt.format;
  reading.opening = prompt.opening;
  reading.options = {rules.parse_calls, rules.split_reasoning};
  const bool offers = rules.tools != nullptr && rules.choice != ToolChoice::none;
  if (offers && can_call(service)) {
    reading.tools = std::make_shared<const common::chat::ToolSet>(*rules.tools, rules.only_tool);
  } else if (offers && rules.choice == ToolChoice::required) {
    throw Error(ErrorCode::invalid_argument, "Field 'tool_choice': the chat template of this model knows no tools",
                "leave tool_choice out, or give the server a template with tools");
  } else if (offers) {
    ggml::logf(ggml::LogLevel::warn, "tools are not offered to the model: its chat template knows none");
  }

  common::chat::ReplyDemand demand;
  demand.tools = reading.tools.get();
  demand.choice = rules.choice;
  demand.parallel = rules.parallel.value_or(service.chat.caps(true).parallel_tool_calls);
  demand.schema = rules.schema.has_value() ? &*rules.schema : nullptr;
  const std::string opening = common::chat::opening_in_grammar(*prompt.format, prompt.opening);
  demand.thinking = prompt.thinking || !opening.empty();
  reading.options.only_calls =
      reading.tools != nullptr && demand.schema == nullptr && rules.choice == ToolChoice::required;
  GenerateRequest& pattern = request.prompts.front();
  pattern.shown_tokens = service.mark_tokens[rules.tools != nullptr ? 1 : 0];
  const std::shared_ptr<common::chat::ReplyRules> limits = limits_of_reasoning(rules, service, reading);
  if (const auto grammar = grammar_of(*prompt.format, demand)) {
    limits->grammar = service.grammars->get(grammar->gbnf);
    limits->lazy = grammar->lazy;
    limits->grammar_opening = opening;
    pattern.grammar = grammar->gbnf;
    request.options.grammar_lazy = grammar->lazy;
  } else {
    hold_to_given_grammar(pattern.grammar, reading, demand.thinking, service, *limits);
    if (limits->grammar == nullptr && limits->reasoning_budget < 0) return;
  }
  pattern.make_mask = [limits, &vocab = service.vocab()]() -> std::unique_ptr<llama::TokenMask> {
    return std::make_unique<common::chat::ReplyMask>(limits, vocab);
  };
  // Once more behind the opening that the template gives the answer.
  if (limits->grammar != nullptr && !limits->lazy)
    common::grammar::check_can_begin(*pattern.make_mask(), service.vocab());
}

}  // namespace server
