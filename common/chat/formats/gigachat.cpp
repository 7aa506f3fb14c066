// GigaChat 3: one call, as a message of its own; from 3.1 on behind a mark in the message.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat one_call_behind(const std::string& mark) {
  ReplyFormat format;
  add_call(format, seq(text(mark), cut(), space(), json_call(name_and_arguments())));
  return format;
}
}  // namespace

const Format k_gigachat3{
    "GigaChat 3",
    [](const TemplateView& t) {
      return t.has("<|role_sep|>") && t.has("<|message_sep|>") && !t.has("<|function_call|>");
    },
    [](const TemplateView&) { return one_call_behind("<|message_sep|>\n\nfunction call<|role_sep|>\n"); }};
const Format k_gigachat3_1{"GigaChat 3.1",
                           [](const TemplateView& t) { return t.has("<|role_sep|>") && t.has("<|function_call|>"); },
                           [](const TemplateView&) { return one_call_behind("<|function_call|>"); }};

}  // namespace common::chat::formats
