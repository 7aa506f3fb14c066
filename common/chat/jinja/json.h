#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/chat/jinja/value.h"

namespace common::jinja {

/// Objects keep their order. Fails the rendering when it is nested deeper than the stack allows.
Value from_json(Runtime& rt, const nlohmann::ordered_json& json);
/// Bytes of text and of elements in `json`: what a rendering's limits are scaled by.
[[nodiscard]] std::size_t json_bytes(const nlohmann::ordered_json& json);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's text
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// json.dumps() of Python. Generators and views become arrays.
[[nodiscard]] std::string dump_json(Runtime& rt, const Value& v, const JsonStyle& style);

}  // namespace common::jinja
