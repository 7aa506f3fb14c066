// MiroThinker: calls as of the Model Context Protocol, each naming a server too.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat describe(const TemplateView& source) {
  ReplyFormat format;
  add_thinking_if_known(format, source);
  // The server follows from the tool's name in the template; clients know nothing of it.
  const ElementPtr one =
      call(seq(text("<server_name>"), skipped_like({"</server_name>"}, "[a-zA-Z0-9_-]{1,64}"), text("</server_name>"),
               space(), text("<tool_name>"), name({"</tool_name>"}), text("</tool_name>"), space(), text("<arguments>"),
               space(), json_arguments(), space(), closing("</arguments>")));
  add_call(format, section("<use_mcp_tool>", one, "</use_mcp_tool>"));
  return format;
}
}  // namespace

const Format k_mirothinker{"MiroThinker", [](const TemplateView& t) { return t.has("<use_mcp_tool>"); }, describe};

}  // namespace common::chat::formats
