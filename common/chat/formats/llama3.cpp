// Llama 3.1 to 3.3: the whole message is one call, with nothing that marks it as such.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  JsonCall shape;
  shape.members = {{"name", JsonCall::Role::name}, {"parameters", JsonCall::Role::arguments}};
  shape.names = Names::offered;
  format.parts.push_back(
      {ReplyPart::Kind::call, seq(maybe(seq(text("<|python_tag|>"), space())), json_call(std::move(shape))), true});
  format.lazy_grammar = false;
  return format;
}
}  // namespace

const Format k_llama3{"Llama 3.x",
                      [](const TemplateView& t) {
                        return t.has("<|start_header_id|>") && (t.has("<|python_tag|>") || t.has("\"parameters\""));
                      },
                      describe};

}  // namespace common::chat::formats
