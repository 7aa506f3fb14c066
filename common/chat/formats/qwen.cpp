// Qwen and the many models that took over its formats: JSON in <tool_call> (which Hermes began), and from Qwen3-Coder
// on tags for every parameter.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat describe_hermes(const TemplateView& source) {
  ReplyFormat format;
  add_thinking_if_known(format, source);
  const ElementPtr one =
      seq(text("<tool_call>"), cut(), space(), json_call(name_and_arguments()), space(), closing("</tool_call>"));
  add_call(format, calls(one, space()));
  return format;
}

ReplyFormat describe_coder(const TemplateView& source) {
  ReplyFormat format;
  if (source.has("<think>")) add_thinking(format, "<think>", {"</think>", "<tool_call>"});
  const ElementPtr parameter = seq(text("<parameter="), key({">"}), text(">"),
                                   value({.stop = "</parameter>", .own_lines = true}), text("</parameter>"));
  const ElementPtr function = seq(text("<function="), cut(), name({">"}), text(">"), parameters(parameter), space(),
                                  closing("</function>"), space(), closing("</tool_call>"));
  // The model forgets the outer tag at times.
  const ElementPtr one = call(choice({seq(text("<tool_call>"), cut(), space(), function), function}));
  add_call(format, calls(one, space()));
  return format;
}
}  // namespace

const Format k_qwen3_coder{
    "Qwen3 Coder",
    [](const TemplateView& t) { return t.has("<tool_call>") && t.has("<function=") && t.has("<parameter="); },
    describe_coder};
const Format k_hermes{"Hermes 2 Pro", [](const TemplateView& t) { return t.has("<tool_call>"); }, describe_hermes};

}  // namespace common::chat::formats
