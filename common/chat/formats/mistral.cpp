// Mistral's models: [TOOL_CALLS] with a list, or once per call.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
constexpr const char* kId = "[a-zA-Z0-9]{9}";

ReplyFormat describe_ministral(const TemplateView& source) {
  ReplyFormat format;
  if (source.has("[THINK]")) add_thinking(format, "[THINK]", {"[/THINK]"});
  const ElementPtr one =
      call(seq(text("[TOOL_CALLS]"), cut(), space(), name({"[ARGS]"}), text("[ARGS]"), space(), json_arguments()));
  add_call(format, calls(one, space()));
  return format;
}

ReplyFormat describe_small(const TemplateView&) {
  ReplyFormat format;
  const ElementPtr one =
      call(seq(text("[TOOL_CALLS]"), cut(), space(), name({"[CALL_ID]", "[ARGS]"}),
               maybe(seq(text("[CALL_ID]"), cut(), id({"[ARGS]"}, kId))), text("[ARGS]"), space(), json_arguments()));
  add_call(format, calls(one, space()));
  return format;
}

ReplyFormat describe_nemo(const TemplateView&) {
  ReplyFormat format;
  JsonCall shape = name_and_arguments();
  shape.members.push_back({"id", JsonCall::Role::id});
  shape.id_pattern = kId;
  add_call(format, seq(text("[TOOL_CALLS]"), cut(), space(), json_call_list(std::move(shape))));
  return format;
}
}  // namespace

const Format k_ministral{"Ministral",
                         [](const TemplateView& t) {
                           return t.has("[SYSTEM_PROMPT]") && t.has("[TOOL_CALLS]") && t.has("[ARGS]") &&
                                  !t.has("[CALL_ID]");
                         },
                         describe_ministral};
const Format k_mistral_small{
    "Mistral Small", [](const TemplateView& t) { return t.has("[TOOL_CALLS]") && t.has("[ARGS]"); }, describe_small};
const Format k_mistral_nemo{"Mistral Nemo", [](const TemplateView& t) { return t.has("[TOOL_CALLS]"); }, describe_nemo};

}  // namespace common::chat::formats
