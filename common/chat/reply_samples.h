#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/chat/reply_parser.h"

namespace common::chat {

/// An output in one format and what it means. `source` holds the marks by which the format is found.
struct ReplySample {
  std::string format;
  std::string source;
  std::string opening;
  std::string output;
  std::string content, reasoning;
  struct Call {
    std::string name, arguments, id;
  };
  std::vector<Call> calls;
};

/// At least one for every row of formats.def.
[[nodiscard]] const std::vector<ReplySample>& reply_samples();
/// get_weather(city, unit?), add(a, b, opts?, tags?), run(code), now().
[[nodiscard]] std::shared_ptr<const ToolSet> sample_tools();
[[nodiscard]] ReplyReading format_of(const ReplySample& sample);

}  // namespace common::chat
