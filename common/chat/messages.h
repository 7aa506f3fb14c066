#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/chat/chat_templates.h"

namespace common::chat {

/// Stands in a text part for one image or audio clip.
inline constexpr std::string_view kMediaMarker = "<__media__>";

/// What a template's source says about the shape it wants messages in, beyond its capabilities.
struct MessageQuirks {
  bool developer_role = false;              // knows `developer` itself
  bool thinking_field = false;              // reads reasoning as `thinking`
  bool thinking_block = false;              // reads reasoning as a content block of type `thinking`
  bool drops_content_beside_calls = false;  // content of a message with reasoning and calls must go
  bool orders_tool_results = false;         // tool results must stand in the order of the calls
  bool folds_tool_results = false;          // tool messages belong into the assistant message, as `tool_responses`
  bool trims_content = false;
  bool lax_template = false;    // was written for an engine that is laxer than Jinja2
  bool functions_text = false;  // reads the functions of all tools as JSON text, in the variable `functions`
};
[[nodiscard]] MessageQuirks find_quirks(std::string_view source);

/// The text of a member of a message; empty when it is absent, null or no text.
[[nodiscard]] std::string text_member(const nlohmann::ordered_json& message, const char* key);
/// The messages as the template wants them. Throws ggml::Error (invalid_argument), naming the message, when one is
/// malformed.
[[nodiscard]] nlohmann::ordered_json normalize_messages(const nlohmann::ordered_json& messages,
                                                        const ChatTemplateCaps& caps, const MessageQuirks& quirks);
/// The functions of the tools as a JSON text, for templates that want them so.
[[nodiscard]] std::string functions_text(const nlohmann::ordered_json& tools);
/// The tools with what their makers left out: a description, parameters and the properties of these, all empty. For
/// templates that cannot do without.
[[nodiscard]] nlohmann::ordered_json completed_tools(const nlohmann::ordered_json& tools);
/// The tools with types that every template which spells them out knows: one name each, and not null; what dicts hold
/// is said. The answer is held to the schemas as they were given all the same.
[[nodiscard]] nlohmann::ordered_json plain_tools(const nlohmann::ordered_json& tools);
/// Throws ggml::Error (invalid_argument) unless `tools` is an array of {type:"function", function:{name, ...}}.
void check_tools(const nlohmann::ordered_json& tools);

}  // namespace common::chat
