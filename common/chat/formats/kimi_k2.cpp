// Kimi K2: sections of calls whose ids hold the names.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<think>", {"</think>"});
  const ElementPtr one =
      call(seq(text("<|tool_call_begin|>"), cut(), space(), name_in_id({"<|tool_call_argument_begin|>"}, "functions."),
               text("<|tool_call_argument_begin|>"), space(), json_arguments(), space(), closing("<|tool_call_end|>")));
  add_call(format, section_or_calls("<|tool_calls_section_begin|>", one, "<|tool_calls_section_end|>"));
  return format;
}
}  // namespace

const Format k_kimi_k2{
    "Kimi K2",
    [](const TemplateView& t) { return t.has("<|tool_calls_section_begin|>") && t.has("<|tool_call_begin|>"); },
    describe};

}  // namespace common::chat::formats
