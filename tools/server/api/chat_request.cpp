#include "api/chat_request.h"

#include "ggml/log.h"

namespace server {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

constexpr int kDefaultTopLogprobs = 20;

void check_part(const Json& part, std::size_t message) {
  const std::string where = strf("Field 'messages[%zu].content'", message);
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
    throw Error(ErrorCode::invalid_argument, where + ": a part must be an object with a type");
  }
  const std::string type = part["type"].get<std::string>();
  if (type == "text") {
    if (!part.contains("text") || !part["text"].is_string())
      throw Error(ErrorCode::invalid_argument, where + ": a text part needs a string 'text'");
    return;
  }
  if (type == "image_url" || type == "input_audio" || type == "input_video") {
    const std::string kind = type == "image_url" ? "image" : type == "input_audio" ? "audio" : "video";
    throw Error(ErrorCode::internal,
                kind + " input is not supported - hint: this model was loaded without a projector");
  }
  throw Error(ErrorCode::invalid_argument, "unsupported content[].type: " + type);
}

void check_message(const Json& message, std::size_t index) {
  const std::string where = strf("Field 'messages[%zu]'", index);
  if (!message.is_object()) throw Error(ErrorCode::invalid_argument, where + ": expected an object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string())
    throw Error(ErrorCode::invalid_argument, where + ": a string 'role' is required");
  const auto content = message.find("content");
  const bool has_content = content != message.end() && !content->is_null();
  const bool may_lack =
      *role == "assistant" && (message.contains("tool_calls") || message.contains("reasoning_content"));
  if (!has_content) {
    if (!may_lack) throw Error(ErrorCode::invalid_argument, where + ": 'content' is required");
    return;
  }
  if (content->is_array()) {
    for (const Json& part : *content) check_part(part, index);
  } else if (!content->is_string()) {
    throw Error(ErrorCode::invalid_argument, where + ": 'content' must be a string or an array of parts");
  }
}

const Json& checked_messages(const Fields& fields) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr) throw Error(ErrorCode::invalid_argument, "Field 'messages': required");
  if (!messages->is_array() || messages->empty()) bad_field("messages", "a non-empty array", *messages);
  for (std::size_t i = 0; i < messages->size(); ++i) check_message((*messages)[i], i);
  return *messages;
}

void refuse_later_chat_fields(const Fields& fields) {
  const Json* tools = fields.find("tools");
  if (tools != nullptr && !tools->is_array()) bad_field("tools", "an array", *tools);
  const Json* choice = fields.find("tool_choice");
  const bool none = choice != nullptr && choice->is_string() && choice->get<std::string>() == "none";
  if (tools != nullptr && !tools->empty() && !none) {
    throw Error(ErrorCode::unsupported, "Field 'tools': tool calls are not available in this version",
                "send tool_choice \"none\" or no tools");
  }
  if (const Json* format = fields.find("response_format")) {
    const auto type = format->is_object() ? format->find("type") : format->end();
    if (type == format->end() || !type->is_string()) bad_field("response_format", "an object with a type", *format);
    const std::string name = type->get<std::string>();
    if (name == "json_object" || name == "json_schema") {
      throw Error(ErrorCode::unsupported, "Field 'response_format': " + name + " is not available in this version",
                  "use {\"type\": \"text\"}");
    }
    if (name != "text") bad_field("response_format", "type text, json_object or json_schema", *format);
  }
}

common::chat::ChatPrompt render(const Fields& fields, const Service& service) {
  const Json& messages = checked_messages(fields);
  common::chat::ChatInputs inputs;
  inputs.messages = &messages;
  inputs.tools = fields.find("tools");
  inputs.kwargs = fields.find("chat_template_kwargs");
  if (inputs.kwargs != nullptr && !inputs.kwargs->is_object())
    bad_field("chat_template_kwargs", "an object", *inputs.kwargs);
  const auto add_prompt = fields.boolean("add_generation_prompt");
  inputs.add_generation_prompt = add_prompt.value_or(true);
  if (fields.text("reasoning_effort").value_or("") == "none") inputs.enable_thinking = false;

  // A conversation that ends with the assistant is continued, unless that is switched off.
  const bool ends_with_assistant = messages.back()["role"] == "assistant";
  const auto continued = fields.boolean("continue_final_message");
  if (continued.value_or(false) && add_prompt.value_or(false)) {
    throw Error(ErrorCode::invalid_argument, "add_generation_prompt and continue_final_message cannot both be true");
  }
  if (ends_with_assistant && continued.value_or(service.settings.chat.prefill_assistant)) {
    if (messages.size() > 1 && messages[messages.size() - 2]["role"] == "assistant") {
      throw Error(ErrorCode::invalid_argument,
                  "the conversation ends with two messages of the assistant; only one can be continued");
    }
    inputs.continue_final_message = common::chat::ContinueFinalMessage::content;
    inputs.add_generation_prompt = false;
  }
  return service.chat.apply(inputs);
}

}  // namespace

ChatRequest read_chat_request(const Fields& fields, const Service& service) {
  refuse_later_chat_fields(fields);
  ChatRequest request;
  request.completion = read_completion_fields(fields, service);
  GenerateRequest& pattern = request.completion.prompts.front();

  int top = kDefaultTopLogprobs;
  const Json* logprobs = fields.find("logprobs");
  const bool wanted = logprobs != nullptr && logprobs->is_boolean() && logprobs->get<bool>();
  if (fields.find("top_logprobs") != nullptr) {
    if (logprobs == nullptr || (logprobs->is_boolean() && !wanted)) {
      throw Error(ErrorCode::invalid_argument, "Field 'top_logprobs': needs logprobs to be true");
    }
    fields.read("top_logprobs", top, 0, ggml::kMaxReportedProbs);
  }
  if (wanted) {
    request.completion.options.report_probabilities = true;
    pattern.sampling.n_probs =
        std::max(1, top);  // the chosen token's own probability is computed with the alternatives
  }

  common::chat::ChatPrompt prompt = render(fields, service);
  pattern.stop.insert(pattern.stop.end(), prompt.additional_stops.begin(), prompt.additional_stops.end());
  Prompts tokens;
  tokens.tokens.push_back(service.vocab().tokenize(prompt.text, {.add_special = true, .parse_special = true}));
  request.prompt_text = std::move(prompt.text);
  set_prompts(request.completion, std::move(tokens));
  return request;
}

std::string apply_chat_template(const Fields& fields, const Service& service) {
  return render(fields, service).text;
}

}  // namespace server
