// Chat templates and reasoning.
#include <nlohmann/json.hpp>

#include "common/args/option.h"
#include "common/args/table.h"
#include "common/args/text_value.h"

namespace common {
namespace {

constexpr std::string_view kChat = "Chat";

void apply_template_file(Target& target, const Argument& argument) {
  target.settings.chat.chat_template = read_text_file(argument, argument.value());
}

void apply_template_kwargs(Target& target, const Argument& argument) {
  check_json(argument, argument.value(), "the value");
  if (!nlohmann::json::parse(argument.value()).is_object()) bad_value(argument, "a JSON object");
  target.settings.chat.template_kwargs = argument.value();
}

void apply_reasoning_format(Target& target, const Argument& argument) {
  const Words<ReasoningFormat> words = {{"auto", ReasoningFormat::automatic},
                                        {"none", ReasoningFormat::none},
                                        {"deepseek", ReasoningFormat::deepseek},
                                        {"deepseek-legacy", ReasoningFormat::deepseek_legacy}};
  target.settings.chat.reasoning_format = to_word(argument, words);
}

const std::vector<Option> kRows = {
    option({"--jinja"}, "", "Use the model's Jinja chat template.",
           toggle([](Settings& s) -> auto& { return s.chat.jinja; }))
        .negative({"--no-jinja"})
        .variable("LLAMA_ARG_JINJA")
        .initially("on"),
    option({"--chat-template"}, "NAME|TEXT", "Another chat template: the name of a built-in one, or its text.",
           text([](Settings& s) -> auto& { return s.chat.chat_template; }))
        .variable("LLAMA_ARG_CHAT_TEMPLATE")
        .initially("the model's"),
    option({"--chat-template-file"}, "FNAME", "Another chat template from a file.", apply_template_file)
        .variable("LLAMA_ARG_CHAT_TEMPLATE_FILE"),
    option({"--chat-template-kwargs"}, "JSON", "Variables for the template; a request may add to them.",
           apply_template_kwargs)
        .variable("LLAMA_ARG_CHAT_TEMPLATE_KWARGS")
        .initially("{}"),
    option(
        {"--reasoning-format"}, "FORMAT",
        "What becomes of thoughts in the answer: none leaves them in the content; auto, deepseek and deepseek-legacy "
        "move them to reasoning_content.",
        apply_reasoning_format)
        .variable("LLAMA_ARG_THINK")
        .initially("auto"),
    option({"-rea", "--reasoning"}, "on|off|auto", "The thinking switch of the template.",
           [](Target& target, const Argument& argument) {
             target.settings.chat.reasoning = to_tristate(argument, argument.value(), true);
           })
        .variable("LLAMA_ARG_REASONING")
        .initially("auto"),
    option({"--reasoning-budget"}, "N", "Tokens that a thought may have; 0: none, -1: no limit.",
           whole(
               [](Settings& s) -> auto& { return s.chat.reasoning_budget; }, -1))
        .variable("LLAMA_ARG_THINK_BUDGET")
        .initially("-1"),
    option({"--reasoning-budget-message"}, "S", "Text at the end of a thought that the budget cuts off.",
           text([](Settings& s) -> auto& { return s.chat.reasoning_budget_message; }))
        .variable("LLAMA_ARG_THINK_BUDGET_MESSAGE"),
    option({"--reasoning-preserve"}, "", "Keep the thoughts of earlier turns in the prompt.",
           toggle([](Settings& s) -> auto& { return s.chat.preserve_reasoning; }))
        .negative({"--no-reasoning-preserve"})
        .variable("LLAMA_ARG_REASONING_PRESERVE")
        .initially("if the template can"),
    option({"--reasoning-tokens"}, "WORD", "Tags left out when prompts are compared.")
        .used_by(kServer)
        .no_effect("prompts are compared as they are"),
    option({"--skip-chat-parsing"}, "", "Put all output into the content, with the marks of thoughts and calls.",
           [](Target& target, const Argument& argument) { target.settings.chat.parse_replies = argument.negative; })
        .negative({"--no-skip-chat-parsing"})
        .variable("LLAMA_ARG_SKIP_CHAT_PARSING")
        .initially("off"),
    option({"--prefill-assistant"}, "", "Continue an assistant message at the end of the conversation.",
           toggle([](Settings& s) -> auto& { return s.chat.prefill_assistant; }))
        .negative({"--no-prefill-assistant"})
        .variable("LLAMA_ARG_PREFILL_ASSISTANT")
        .used_by(kServer)
        .initially("on"),
    option({"-ptcall", "--parallel-tool-calls"}, "", "Several tool calls in one answer, where a request does not say.",
           toggle([](Settings& s) -> auto& { return s.chat.parallel_tool_calls; }))
        .negative({"--no-parallel-tool-calls"})
        .used_by(kServer)
        .initially("if the template can"),
    option({"--peg"}, "", "Parser of tool calls.").used_by(kServer).no_effect("there is one parser"),
};

}  // namespace

void add_chat_options(std::vector<Option>& table) {
  for (Option row : kRows) {
    row.group = kChat;
    if (row.tools == kModelRunners) row.tools = kGenerators;
    table.push_back(std::move(row));
  }
}

}  // namespace common
