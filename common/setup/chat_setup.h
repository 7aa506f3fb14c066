#pragma once

#include "common/args/settings.h"
#include "common/chat/chat_templates.h"
#include "llama/model.h"

namespace common {

/// The chat template of a model under the user's chat options. Throws Error when the template does not parse.
[[nodiscard]] chat::ChatTemplates make_chat_templates(const ChatSettings& settings, const llama::Model& model);

}  // namespace common
