// Text without calls, and the reasoning that any template may have.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

const Format k_plain{"Content-only", [](const TemplateView&) { return true; },
                     [](const TemplateView& source) {
                       ReplyFormat format;
                       add_thinking_if_known(format, source);
                       return format;
                     }};

}  // namespace common::chat::formats
