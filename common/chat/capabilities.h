#pragma once

#include "common/chat/chat_templates.h"
#include "common/chat/jinja/template.h"

namespace common::chat {

/// Renders probe conversations and looks at what came out.
[[nodiscard]] ChatTemplateCaps probe_template(const jinja::Template& parsed, std::string_view source,
                                              const nlohmann::ordered_json& base_context);

}  // namespace common::chat
