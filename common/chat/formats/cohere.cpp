// Cohere's models: actions as a list of objects, the answer between marks of its own.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat with_actions(const std::string& open, const std::string& close) {
  ReplyFormat format;
  add_thinking(format, "<|START_THINKING|>", {"<|END_THINKING|>"});
  JsonCall shape;
  shape.members = {{"tool_call_id", JsonCall::Role::id},
                   {"tool_name", JsonCall::Role::name},
                   {"parameters", JsonCall::Role::arguments}};
  shape.id_pattern = "[0-9]{1,4}";
  add_call(format, seq(text("<|START_ACTION|>"), cut(), space(), json_call_list(std::move(shape)), space(),
                       closing("<|END_ACTION|>")));
  add_mark(format, text(open));
  add_mark(format, text(close));
  format.answer_open = text(open);
  format.answer_close = text(close);
  return format;
}

ReplyFormat describe_r_plus(const TemplateView&) {
  ReplyFormat format;
  JsonCall shape;
  shape.members = {{"tool_name", JsonCall::Role::name}, {"parameters", JsonCall::Role::arguments}};
  add_call(format, seq(text("Action:"), space(), text("```json"), cut(), space(), json_call_list(std::move(shape)),
                       space(), closing("```")));
  return format;
}
}  // namespace

const Format k_cohere2{"Cohere2 MoE",
                       [](const TemplateView& t) { return t.has("<|START_TEXT|>") && t.has("<|START_ACTION|>"); },
                       [](const TemplateView&) { return with_actions("<|START_TEXT|>", "<|END_TEXT|>"); }};
const Format k_command_r7b{"Command R7B", [](const TemplateView& t) { return t.has("<|START_ACTION|>"); },
                           [](const TemplateView&) { return with_actions("<|START_RESPONSE|>", "<|END_RESPONSE|>"); }};
const Format k_command_r_plus{
    "Command R+", [](const TemplateView& t) { return t.has("Action:") && t.has("\"tool_name\""); }, describe_r_plus};

}  // namespace common::chat::formats
