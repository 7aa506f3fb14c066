// GLM 4.5 to 5, Laguna and Hunyuan 3: the name in the open, keys and values in tags.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
/// `suffix` stands in every tag before its end.
ElementPtr pairs(const std::string& suffix) {
  const auto tag = [&](const std::string& word) { return "<" + word + suffix + ">"; };
  return parameters(seq(text(tag("arg_key")), key({tag("/arg_key")}), text(tag("/arg_key")), space(),
                        text(tag("arg_value")), value({.stop = tag("/arg_value")}), text(tag("/arg_value"))));
}

ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<think>", {"</think>"});
  const ElementPtr one = call(seq(text("<tool_call>"), cut(), space(), name({"\n", "<arg_key>", "</tool_call>"}),
                                  pairs(""), space(), closing("</tool_call>")));
  add_call(format, calls(one, space()));
  return format;
}

ReplyFormat describe_hunyuan(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<think:opensource>", {"</think:opensource>"});
  const ElementPtr one = call(
      seq(text("<tool_call:opensource>"), cut(), space(), name({"<tool_sep:opensource>", "</tool_call:opensource>"}),
          closing("<tool_sep:opensource>"), pairs(":opensource"), space(), closing("</tool_call:opensource>")));
  add_call(format, section_or_calls("<tool_calls:opensource>", one, "</tool_calls:opensource>"));
  return format;
}
}  // namespace

const Format k_glm{"GLM 4.5", [](const TemplateView& t) { return t.has("<arg_key>"); }, describe};
const Format k_hunyuan3{"Hunyuan 3", [](const TemplateView& t) { return t.has("tool_calls:opensource"); },
                        describe_hunyuan};

}  // namespace common::chat::formats
