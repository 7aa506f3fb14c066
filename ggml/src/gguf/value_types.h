#pragma once

#include <cstdint>

#include <cstddef>

#include "ggml/gguf.h"

namespace ggml::gguf {

/// As printf's %llu takes it.
[[nodiscard]] constexpr unsigned long long ull(std::uint64_t value) noexcept {
  return value;
}

inline constexpr std::uint32_t kValueTypes = 13;

/// Bytes of a value or array element as stored; 0 for strings and arrays, which have no fixed size.
constexpr std::size_t value_bytes(ValueType type) noexcept {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean:
      return 1;
    case ValueType::u16:
    case ValueType::i16:
      return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32:
      return 4;
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64:
      return 8;
    case ValueType::string:
    case ValueType::array:
      break;
  }
  return 0;
}

/// The alternative of Value::data that holds a value of this type.
constexpr std::size_t variant_index(ValueType type) noexcept {
  switch (type) {
    case ValueType::u8:
    case ValueType::u16:
    case ValueType::u32:
    case ValueType::u64:
      return 0;
    case ValueType::i8:
    case ValueType::i16:
    case ValueType::i32:
    case ValueType::i64:
      return 1;
    case ValueType::f32:
    case ValueType::f64:
      return 2;
    case ValueType::boolean:
      return 3;
    case ValueType::string:
      return 4;
    case ValueType::array:
      break;
  }
  return 5;
}

}  // namespace ggml::gguf
