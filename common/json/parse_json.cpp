#include "common/json/parse_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/json/json_fault.h"
#include "ggml/log.h"

namespace common {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

/// Counts brackets outside strings, the one pass over a text that is right: destroying a value and writing one recurse
/// per level.
bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

[[noreturn]] void refuse(std::string_view text, std::string_view subject, std::string_view hint) {
  const std::optional<JsonFault> fault = find_json_fault(text, kMaxJsonDepth);
  std::string message(subject);
  if (!fault.has_value()) throw Error(ErrorCode::invalid_argument, message + " not valid JSON", std::string(hint));
  message += strf(" not valid JSON: line %d, column %d (byte %zu of %zu): ", fault->line, fault->column,
                  fault->offset + (fault->is_end_missing ? 0 : 1), text.size());
  if (fault->is_end_missing) message += strf("it ends too early, after %zu bytes: ", text.size());
  throw Error(ErrorCode::invalid_argument, message + fault->what, std::string(hint));
}

}  // namespace

nlohmann::ordered_json parse_json(std::string_view text, std::string_view subject, std::string_view hint) {
  // The library takes a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos || is_too_deep(text)) refuse(text, subject, hint);
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::ordered_json::exception&) {
    refuse(text, subject, hint);
  }
}

}  // namespace common
