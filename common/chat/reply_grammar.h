#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/chat/reply_format.h"
#include "common/chat/reply_parser.h"
#include "common/chat/tools.h"

namespace common::chat {

enum class ToolChoice : std::uint8_t { automatic, none, required };

/// What a reply must be.
struct ReplyDemand {
  const ToolSet* tools = nullptr;  // may be null
  ToolChoice choice = ToolChoice::automatic;
  bool parallel = false;
  /// The answer as JSON of this schema; null: any text. It comes before tools: then there are no calls.
  const nlohmann::ordered_json* schema = nullptr;
  bool thinking = true;  // reasoning may stand in front
};

struct ReplyGrammar {
  std::string gbnf;
  /// It begins with the first call; any text is allowed before. Otherwise it begins with the opening of the reply (what
  /// the parser reads of ReplyOpening), which must be fed to it.
  bool lazy = false;
};

/// The grammar of a format's replies; nothing when any text will do. Throws Error(invalid_argument) with the path to
/// what is wrong in a schema, (unsupported) when calls are required and the format has none.
[[nodiscard]] std::optional<ReplyGrammar> reply_grammar(const ReplyFormat& format, const ReplyDemand& demand);

/// What stands around an answer that a grammar of the client's own writes, as the frame of Grammar::parse_framed():
/// thoughts in front, if there may be some, and the marks of the answer; nothing when the format has neither.
[[nodiscard]] std::optional<std::string> answer_frame(const ReplyFormat& format, bool thinking);

/// The part of the opening with which a grammar that is not lazy begins.
[[nodiscard]] std::string opening_in_grammar(const ReplyFormat& format, const ReplyOpening& opening);

}  // namespace common::chat
