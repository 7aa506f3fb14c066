#include "common/chat/formats/format.h"

#include <algorithm>

namespace common::chat {

namespace formats {

void add_thinking(ReplyFormat& format, const std::string& start, std::vector<std::string> ends) {
  format.think_start = start;
  format.think_ends = ends;
  const std::string end = ends.front();
  format.parts.push_back({ReplyPart::Kind::reasoning,
                          seq(text(start), cut(), said(Field::reasoning, std::move(ends)), closing(end)), true});
}

void add_thinking_if_known(ReplyFormat& format, const TemplateView& source) {
  if (source.has("<think>") || source.has("</think>")) add_thinking(format, "<think>", {"</think>"});
}

void add_call(ReplyFormat& format, ElementPtr call) {
  format.parts.push_back({ReplyPart::Kind::call, std::move(call)});
}

void add_mark(ReplyFormat& format, ElementPtr mark) {
  format.parts.push_back({ReplyPart::Kind::mark, std::move(mark)});
}

ElementPtr section(std::string begin, const ElementPtr& one, std::string end) {
  return seq(text(std::move(begin)), cut(), space(), calls(one, space()), space(), closing(std::move(end)));
}

ElementPtr section_or_calls(std::string begin, const ElementPtr& one, std::string end) {
  return seq(maybe(seq(text(std::move(begin)), space())), calls(one, space()), space(), closing(std::move(end)));
}

}  // namespace formats

namespace {
const formats::Format* const kFormats[] = {
#define CHAT_FORMAT(id) &formats::k_##id,
#include "common/chat/formats/formats.def"
#undef CHAT_FORMAT
};
}  // namespace

bool ReplyFormat::has_calls() const {
  return std::any_of(parts.begin(), parts.end(), [](const ReplyPart& p) { return p.kind == ReplyPart::Kind::call; });
}

std::vector<std::string> ReplyFormat::marks() const {
  std::vector<std::string> all;
  for (const ReplyPart& part : parts) part.syntax->add_marks(all);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::shared_ptr<const ReplyFormat> find_reply_format(std::string_view template_source) {
  const TemplateView source(template_source);
  for (const formats::Format* format : kFormats) {
    if (!format->detect(source)) continue;
    ReplyFormat described = format->describe(source);
    described.name = format->name;
    return std::make_shared<const ReplyFormat>(std::move(described));
  }
  return std::make_shared<const ReplyFormat>();  // the last row accepts everything
}

}  // namespace common::chat
