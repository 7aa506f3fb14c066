// MiniCPM 5: tags with names as attributes.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<think>", {"</think>"});
  const ElementPtr parameter =
      seq(text("<param name=\""), key({"\""}), text("\">"), value({.stop = "</param>"}), text("</param>"));
  const ElementPtr one = call(seq(text("<function"), cut(), space(), text("name=\""), name({"\""}), text("\">"),
                                  parameters(parameter), space(), closing("</function>")));
  add_call(format, calls(one, space()));
  return format;
}
}  // namespace

const Format k_minicpm5{"MiniCPM5",
                        [](const TemplateView& t) {
                          return t.has("Tool usage guidelines:") && t.has("<function name=\"") &&
                                 t.has("<param name=\"");
                        },
                        describe};

}  // namespace common::chat::formats
