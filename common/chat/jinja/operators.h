#pragma once

#include <cstdint>

#include "common/chat/jinja/value.h"

// Operators with Python's meaning. All fail the rendering with Python's message when the types do not fit.
namespace common::jinja {

enum class BinaryOp : std::uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class CompareOp : std::uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

Value binary(Runtime& rt, BinaryOp op, const Value& left, const Value& right);
Value negate(Runtime& rt, const Value& v);
Value positive(Runtime& rt, const Value& v);
[[nodiscard]] bool equal(Runtime& rt, const Value& left, const Value& right);
/// Negative, zero or positive; `symbol` names the operator in the message.
[[nodiscard]] int order(Runtime& rt, const Value& left, const Value& right, const char* symbol);
[[nodiscard]] bool compare(Runtime& rt, CompareOp op, const Value& left, const Value& right);
[[nodiscard]] bool contains(Runtime& rt, const Value& container, const Value& item);

}  // namespace common::jinja
