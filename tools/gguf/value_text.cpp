#include "value_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace gguf_tool {
namespace {

using ggml::gguf::Array;
using ggml::gguf::Value;
using ggml::gguf::ValueType;

constexpr std::size_t kStringBytes = 100;
constexpr std::size_t kElementBytes = 24;
constexpr std::size_t kElements = 8;

/// `text` cut to `most` bytes, not inside a UTF-8 sequence.
std::string_view cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return text.substr(0, most);
}

std::string string_text(std::string_view text, std::size_t most) {
  const std::string_view head = cut(text, most);
  return fmt::format("\"{}\"{}", escaped(head), head.size() < text.size() ? "..." : "");
}

std::string element_text(const Array& array, std::size_t i, std::size_t most) {
  switch (array.element) {
    case ValueType::string:
      return string_text(array.strings[i], most);
    case ValueType::boolean:
      return array.integer(i) != 0 ? "true" : "false";
    case ValueType::f32:
    case ValueType::f64:
      return float_text(array.number(i), array.element);
    case ValueType::u64:
      return fmt::format("{}", static_cast<std::uint64_t>(array.integer(i)));
    default:
      return fmt::format("{}", array.integer(i));
  }
}

std::string array_text(const Array& array, Detail detail) {
  const bool full = detail == Detail::full;
  const std::size_t shown = full ? array.size() : std::min(array.size(), kElements);
  std::string out = "[";
  for (std::size_t i = 0; i < shown; ++i) {
    out += i == 0 ? "" : ", ";
    out += element_text(array, i, full ? std::string::npos : kElementBytes);
  }
  return out + (shown < array.size() ? ", ...]" : "]");
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string type_text(const Value& value) {
  const auto* array = std::get_if<Array>(&value.data);
  if (array == nullptr) return std::string(value_type_name(value.type));
  return fmt::format("array of {} {}", array->size(), value_type_name(array->element));
}

std::string float_text(double value, ValueType type) {
  return type == ValueType::f32 ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
}

std::string value_text(const Value& value, Detail detail) {
  if (const auto* array = std::get_if<Array>(&value.data)) return array_text(*array, detail);
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    return string_text(*text, detail == Detail::full ? std::string::npos : kStringBytes);
  }
  if (const auto* number = std::get_if<double>(&value.data)) return float_text(*number, value.type);
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<std::int64_t>(&value.data)) return fmt::format("{}", *number);
  return fmt::format("{}", std::get<std::uint64_t>(value.data));
}

}  // namespace gguf_tool
