#pragma once

#include <string>
#include <string_view>

#include "common/chat/jinja/value.h"

namespace common::jinja {

/// str(v) in Python; nothing for undefined values.
void append_str(Runtime& rt, std::string& out, const Value& v);
[[nodiscard]] std::string to_str(Runtime& rt, const Value& v);
/// repr(v) in Python. `pretty` sorts the keys of dicts, as the pprint module does.
enum class ReprStyle { plain, sorted_keys };
void append_repr(Runtime& rt, std::string& out, const Value& v, ReprStyle style = ReprStyle::plain);
void append_repr(std::string& out, std::string_view text);
[[nodiscard]] std::string to_str(Int i);
/// Shortest text that reads back as the same number, laid out as Python does: 1.0, 1e+16, 1e-07.
[[nodiscard]] std::string to_str(double d);

}  // namespace common::jinja
