#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace common::chat {

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text
};

/// What a model's output means.
struct Reply {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> calls;
};

/// What a piece of output adds to the reply.
struct ReplyDelta {
  enum class Kind : std::uint8_t {
    reasoning,       // `text`
    content,         // `text`
    call_begin,      // `index`, `id`, `name`, and in `text` the arguments so far
    call_arguments,  // `index`, and in `text` more arguments
  };
  Kind kind;
  int index = 0;
  std::string text;
  std::string id, name;
};

}  // namespace common::chat
