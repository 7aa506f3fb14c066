// MiniMax M2, and Seed-OSS: a section in a namespace of its own, tags for every parameter.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<think>", {"</think>"});
  const ElementPtr parameter =
      seq(text("<parameter name=\""), key({"\""}), text("\">"), value({.stop = "</parameter>"}), text("</parameter>"));
  const ElementPtr one = call(
      seq(text("<invoke name=\""), name({"\""}), text("\">"), parameters(parameter), space(), closing("</invoke>")));
  add_call(format, section("<minimax:tool_call>", one, "</minimax:tool_call>"));
  return format;
}

ReplyFormat describe_seed(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<seed:think>", {"</seed:think>"});
  const ElementPtr parameter =
      seq(text("<parameter="), key({">"}), text(">"), value({.stop = "</parameter>"}), text("</parameter>"));
  const ElementPtr one =
      call(seq(text("<function="), name({">"}), text(">"), parameters(parameter), space(), closing("</function>")));
  add_call(format, calls(section("<seed:tool_call>", one, "</seed:tool_call>"), space()));
  return format;
}
}  // namespace

const Format k_minimax_m2{"MiniMax M2", [](const TemplateView& t) { return t.has("minimax:tool_call"); }, describe};
const Format k_seed_oss{"Seed-OSS", [](const TemplateView& t) { return t.has("<seed:tool_call>"); }, describe_seed};

}  // namespace common::chat::formats
