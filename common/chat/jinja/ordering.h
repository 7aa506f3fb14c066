#pragma once

#include <vector>

#include "common/chat/jinja/value.h"

namespace common::jinja {

/// Sorts `items` stably by `keys` (same length; may be a copy of the items). Fails when keys cannot be compared.
void sort_values(Runtime& rt, std::vector<Value>& items, const std::vector<Value>& keys, bool reverse);
/// Text in lower case, other values as they are: how filters compare unless told to mind the case.
Value fold_case(Runtime& rt, const Value& v);
/// dict.update(): another mapping or pairs, then the named arguments.
void update_dict(Runtime& rt, Dict& d, const Args& args);

}  // namespace common::jinja
