#pragma once

#include <string>
#include <string_view>

#include "ggml/gguf.h"

namespace gguf_tool {

enum class Detail : std::uint8_t { abbreviated, full };

/// Text from a file made harmless for a terminal: control characters as \n, \t or \xNN, backslashes doubled. Bytes from
/// 0x80 on pass, since names and tokens are UTF-8.
[[nodiscard]] std::string escaped(std::string_view text);

/// "u32", "string", "array of 151936 string".
[[nodiscard]] std::string type_text(const ggml::gguf::Value& value);

/// A value in one line. Abbreviated: the first elements of an array, the first 100 characters of a string.
[[nodiscard]] std::string value_text(const ggml::gguf::Value& value, Detail detail);

/// The shortest text that reads back as the same number of its stored width.
[[nodiscard]] std::string float_text(double value, ggml::gguf::ValueType type);

}  // namespace gguf_tool
