// gpt-oss: messages with a channel and perhaps a recipient in their headers, several in one reply.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
const std::vector<std::string> kEnds = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};

ElementPtr start() {
  return maybe(text("<|start|>assistant"));
}
ElementPtr any_end() {
  return choice({text("<|end|>"), text("<|call|>"), text("<|return|>")});
}

/// Up to the message; a grammar names the type.
ElementPtr rest_of_header(const char* canonical) {
  return seq(skipped({"<|message|>"}, canonical), text("<|message|>"), space());
}

ElementPtr channel_of_calls() {
  return choice({text("commentary"), text("analysis")});
}

/// A call, its recipient in the role or in the channel.
ElementPtr one_call() {
  const ElementPtr in_channel = seq(start(), text("<|channel|>"), channel_of_calls(), space(), text("to=functions."),
                                    cut(), name({" ", "<|"}), rest_of_header(" <|constrain|>json"), json_arguments());
  const ElementPtr in_role = seq(text("<|start|>assistant"), space(), text("to=functions."), cut(), name({" ", "<|"}),
                                 rest_of_header("<|channel|>commentary json"), json_arguments());
  // The mark at the end is the token that ends the generation, so a grammar must not insist on its text.
  return call(seq(choice({in_channel, in_role}), maybe(seq(space(), text("<|call|>")))));
}

/// A header up to its recipient.
ElementPtr recipient() {
  const ElementPtr channel = seq(text("<|channel|>"), channel_of_calls());
  return choice(
      {seq(text("<|start|>assistant"), maybe(channel), space(), text("to=")), seq(channel, space(), text("to="))});
}

ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  format.think_start = "<|channel|>analysis<|message|>";
  format.think_ends = {"<|end|>"};
  format.parts.push_back({ReplyPart::Kind::reasoning, seq(start(), text("<|channel|>analysis"), text("<|message|>"),
                                                          cut(), said(Field::reasoning, kEnds), closing("<|end|>"))});
  add_call(format, calls(one_call(), space()));
  // Recipients that are no functions of the client's: built-in tools, which nobody runs here.
  add_mark(format, seq(recipient(), not_before({"functions.", "assistant"}), cut(), skipped({"<|message|>"}, ""),
                       skipped({"<|end|>", "<|call|>", "<|return|>", "<|start|>"}, "")));
  // A header that was begun and begun again.
  add_mark(format, seq(start(), text("<|channel|>"), channel_of_calls(), space(), maybe(text("to=assistant")),
                       before({"<|channel|>", "<|start|>"})));
  const ElementPtr type = maybe(seq(space(), text("<|constrain|>"), cut(), skipped({"<|message|>"}, "json")));
  const ElementPtr shown = seq(start(), text("<|channel|>"), choice({text("final"), text("commentary")}), type, space(),
                               text("<|message|>"));
  add_mark(format, shown);
  add_mark(format, any_end());
  add_mark(format, text("<|start|>assistant"));
  format.answer_open = seq(start(), text("<|channel|>final<|message|>"));
  return format;
}
}  // namespace

const Format k_harmony{"GPT-OSS", [](const TemplateView& t) { return t.has("<|channel|>"); }, describe};

}  // namespace common::chat::formats
