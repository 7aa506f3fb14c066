#pragma once

#include <string>

namespace common::chat {

/// Where a reply begins: what the prompt already holds of it.
struct ReplyOpening {
  std::string text;        // the end of the prompt from the generation prompt on
  bool continues = false;  // it holds a part of the reply itself, which is not said again
};

}  // namespace common::chat
