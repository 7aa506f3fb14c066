#include "api/chat_request.h"

#include "api/chat_rules.h"

#include "ggml/log.h"

namespace server {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

constexpr int kDefaultTopLogprobs = 20;
constexpr std::size_t kMaxTemplateArguments = 1024;  // each is looked for among all variables of the template

void check_part(const Json& part, std::size_t message, std::size_t index) {
  const std::string where = strf("Field 'messages[%zu].content[%zu]'", message, index);
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
    throw Error(ErrorCode::invalid_argument, where + ": " + kind + " input is not supported",
                "this model and server take text only; leave the part out");
  }
  throw Error(ErrorCode::invalid_argument, where + ": unsupported content[].type: " + type);
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
    for (std::size_t i = 0; i < content->size(); ++i) check_part((*content)[i], index, i);
  } else if (!content->is_string()) {
    throw Error(ErrorCode::invalid_argument, where + ": 'content' must be a string or an array of parts");
  }
}

const Json& checked_messages(const Fields& fields) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr)
    throw Error(ErrorCode::invalid_argument, "Field 'messages': required",
                fields.find("prompt") != nullptr ? "a prompt is for /v1/completions or /completion" : "");
  if (!messages->is_array() || messages->empty()) bad_field("messages", "a non-empty array", *messages);
  for (std::size_t i = 0; i < messages->size(); ++i) check_message((*messages)[i], i);
  return *messages;
}

/// A conversation that ends with the assistant is continued, unless that is switched off.
common::chat::ContinueFinalMessage continued_part(const Fields& fields, const Json& messages, const Service& service) {
  using Part = common::chat::ContinueFinalMessage;
  const Json* given = fields.find("continue_final_message");
  Part part = service.settings.chat.prefill_assistant ? Part::content : Part::none;
  if (given != nullptr) {
    if (*given == "content" || *given == true) {
      part = Part::content;
    } else if (*given == "reasoning_content") {
      part = Part::reasoning_content;
    } else if (*given == false) {
      part = Part::none;
    } else {
      bad_field("continue_final_message", "true, false, \"content\" or \"reasoning_content\"", *given);
    }
  }
  if (part == Part::none) return part;
  if (messages.back()["role"] != "assistant") {
    if (given == nullptr) return Part::none;
    throw Error(ErrorCode::invalid_argument,
                "Field 'continue_final_message': the last message is not one of the assistant");
  }
  if (messages.size() > 1 && messages[messages.size() - 2]["role"] == "assistant") {
    throw Error(ErrorCode::invalid_argument,
                "the conversation ends with two messages of the assistant; only one can be continued");
  }
  return part;
}

common::chat::ChatPrompt render(const Fields& fields, const ChatRules& rules, const Service& service) {
  const Json& messages = checked_messages(fields);
  common::chat::ChatInputs inputs;
  inputs.messages = &messages;
  inputs.tools = rules.tools;
  inputs.kwargs = fields.find("chat_template_kwargs");
  if (inputs.kwargs != nullptr && !inputs.kwargs->is_object())
    bad_field("chat_template_kwargs", "an object", *inputs.kwargs);
  if (inputs.kwargs != nullptr)
    check_count("chat_template_kwargs", inputs.kwargs->size(), kMaxTemplateArguments, "members");
  const auto add_prompt = fields.boolean("add_generation_prompt");
  inputs.add_generation_prompt = add_prompt.value_or(true);
  inputs.reasoning_effort = fields.text("reasoning_effort").value_or("");
  if (inputs.reasoning_effort == "none") {
    inputs.enable_thinking = false;
    inputs.reasoning_effort.clear();
  }

  const Json* continues = fields.find("continue_final_message");
  if (continues != nullptr && *continues != false && add_prompt.value_or(false))
    throw Error(ErrorCode::invalid_argument, "add_generation_prompt and continue_final_message cannot both be true");
  const auto part = continued_part(fields, messages, service);
  if (part != common::chat::ContinueFinalMessage::none) {
    inputs.continue_final_message = part;
    inputs.add_generation_prompt = false;
  }
  return service.chat.apply(inputs);
}

}  // namespace

ChatRequest read_chat_request(const Fields& fields, const Service& service) {
  const ChatRules rules = read_chat_rules(fields, service);
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
    request.completion.options.report_alternatives = top > 0;
    pattern.sampling.n_probs =
        std::max(1, top);  // the chosen token's own probability is computed with the alternatives
  }

  common::chat::ChatPrompt prompt = render(fields, rules, service);
  apply_chat_rules(rules, prompt, service, request.completion);
  pattern.stop.insert(pattern.stop.end(), prompt.additional_stops.begin(), prompt.additional_stops.end());
  if (prompt.text.empty())
    throw Error(ErrorCode::invalid_argument, "Field 'messages': the chat template makes an empty prompt of them");
  Prompts tokens;
  tokens.prompts.push_back(tokenize_prompt("messages", prompt.text, service));
  request.prompt_text = std::move(prompt.text);
  set_prompts(request.completion, std::move(tokens));
  return request;
}

std::string apply_chat_template(const Fields& fields, const Service& service) {
  return render(fields, read_chat_rules(fields, service), service).text;
}

}  // namespace server
