#pragma once

#include <string>
#include <string_view>

#include "common/chat/reply_format.h"
#include "common/chat/syntax/json_call.h"
#include "common/chat/syntax/parameters.h"

/// What the files of the formats share.
namespace common::chat::formats {

using namespace common::chat::syntax;  // NOLINT(google-build-using-namespace): descriptions read as prose this way

/// A row of formats.def.
struct Format {
  std::string_view name;
  bool (*detect)(const TemplateView& source);
  ReplyFormat (*describe)(const TemplateView& source);
};

#define CHAT_FORMAT(id) extern const Format k_##id;
#include "common/chat/formats/formats.def"
#undef CHAT_FORMAT

/// Adds reasoning between `start` and the first of `ends`, in front of everything else. Ends but the first are not part
/// of it: they begin what comes next.
void add_thinking(ReplyFormat& format, const std::string& start, std::vector<std::string> ends);
/// Adds <think>...</think> if the template knows it.
void add_thinking_if_known(ReplyFormat& format, const TemplateView& source);
void add_call(ReplyFormat& format, ElementPtr call);
/// Adds a text that is shown to nobody.
void add_mark(ReplyFormat& format, ElementPtr mark);

/// `begin` [ws] CALLS [ws] `end`: a section of one or more calls.
[[nodiscard]] ElementPtr section(std::string begin, const ElementPtr& one, std::string end);
/// The same; the mark at its beginning may be missing.
[[nodiscard]] ElementPtr section_or_calls(std::string begin, const ElementPtr& one, std::string end);

}  // namespace common::chat::formats
