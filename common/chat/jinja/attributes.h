#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "common/chat/jinja/value.h"

namespace common::jinja {

/// `v.name`: a method or attribute first, then an item of that key. Undefined when there is neither.
Value get_attribute(Runtime& rt, const Value& v, std::string_view name);
/// `v[key]`: an item first, then an attribute. Undefined when there is neither.
Value get_item(Runtime& rt, const Value& v, const Value& key);
/// `a.b.0` as the filters' `attribute` argument spells it.
Value get_path(Runtime& rt, const Value& v, const Value& path);
struct Slice {
  std::optional<Value> start, stop, step;
};
Value get_slice(Runtime& rt, const Value& v, const Slice& slice);
/// What a loop over `v` yields. A generator is used up by it.
std::vector<Value> iterate(Runtime& rt, const Value& v);
/// len(v); nothing when it has none.
std::optional<std::size_t> length(const Value& v);

/// A method of text, a list or a dict. `args` may be consumed.
using Method = Value (*)(Runtime& rt, const Value& self, Args& args);
/// Null when values like `self` have no such method.
Method find_method(const Value& self, std::string_view name);
Method find_text_method(std::string_view name);
Method find_list_method(std::string_view name);
Method find_dict_method(std::string_view name);

}  // namespace common::jinja
