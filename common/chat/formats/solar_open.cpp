// Solar Open: every piece of a call has a mark in front.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  format.think_start = "<|think|>";
  format.think_ends = {"<|end|>"};
  format.parts.push_back({ReplyPart::Kind::reasoning,
                          seq(text("<|think|>"), cut(), said(Field::reasoning, {"<|end|>"}), closing("<|end|>"),
                              closing("<|begin|>assistant")),
                          true});
  const ElementPtr one = call(seq(text("<|tool_call:begin|>"), cut(), id({"<|tool_call:name|>"}, "[a-zA-Z0-9]{1,32}"),
                                  text("<|tool_call:name|>"), name({"<|tool_call:args|>"}), text("<|tool_call:args|>"),
                                  space(), json_arguments(), space(), closing("<|tool_call:end|>")));
  add_call(format, section_or_calls("<|tool_calls|>", one, "<|calls|>"));
  add_mark(format, text("<|begin|>assistant"));
  add_mark(format, text("<|content|>"));
  add_mark(format, text("<|end|>"));
  format.answer_open = maybe(text("<|content|>"));
  return format;
}
}  // namespace

const Format k_solar_open{"Solar Open", [](const TemplateView& t) { return t.has("<|tool_call:begin|>"); }, describe};

}  // namespace common::chat::formats
