// GigaChat 3: one call, as a message of its own.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  add_call(format, seq(text("<|message_sep|>\n\nfunction call<|role_sep|>\n"), cut(), space(),
                       json_call(name_and_arguments())));
  return format;
}
}  // namespace

const Format k_gigachat3{"GigaChat 3",
                         [](const TemplateView& t) {
                           return t.has("<|role_sep|>") && t.has("<|message_sep|>") && !t.has("<|function_call|>");
                         },
                         describe};

}  // namespace common::chat::formats
