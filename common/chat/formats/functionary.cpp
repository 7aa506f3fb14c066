// Functionary: 3.1 wraps each call in a tag, 3.2 begins every piece of a reply with its recipient.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat describe_v3_1(const TemplateView&) {
  ReplyFormat format;
  const ElementPtr one = call(seq(text("<function="), cut(), name({">"}), text(">"), space(), json_arguments(), space(),
                                  closing("</function>")));
  add_call(format, calls(one, space()));
  return format;
}

ReplyFormat describe_v3_2(const TemplateView&) {
  ReplyFormat format;
  add_mark(format, text(">>>all\n"));
  const ElementPtr one = call(seq(text(">>>"), not_before({"all\n"}), cut(), name({"\n"}, Names::offered), text("\n"),
                                  space(), json_arguments()));
  add_call(format, calls(one, space()));
  format.answer_open = text(">>>all\n");
  format.reserved_names = {"all"};
  return format;
}
}  // namespace

const Format k_functionary_v3_1{"Functionary v3.1", [](const TemplateView& t) { return t.has("<function="); },
                                describe_v3_1};
const Format k_functionary_v3_2{"Functionary v3.2",
                                [](const TemplateView& t) { return t.has(">>>all") && t.has(">>>${recipient}"); },
                                describe_v3_2};

}  // namespace common::chat::formats
