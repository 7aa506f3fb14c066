#pragma once

#include <string_view>
#include <vector>

#include "common/chat/jinja/value.h"

namespace common::jinja {

/// "…" % values, Python's printf-like formatting. `mapping` serves %(name)s.
Value percent_format(Runtime& rt, std::string_view format, const std::vector<Value>& values, const Value& mapping);
/// "…".format(*args, **named).
Value brace_format(Runtime& rt, std::string_view format, const Args& args);

}  // namespace common::jinja
