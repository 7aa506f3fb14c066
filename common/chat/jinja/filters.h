#pragma once

#include <string_view>
#include <unordered_map>

#include "common/chat/jinja/value.h"

namespace common::jinja {

/// `subject | name(args)`. `args` may be consumed.
using Filter = Value (*)(Runtime& rt, const Value& subject, Args& args);
/// `subject is name(args)`.
using Test = bool (*)(Runtime& rt, const Value& subject, Args& args);
using FilterTable = std::unordered_map<std::string_view, Filter>;

/// Calls a filter; one that is given a text costs by the byte.
Value apply_filter(Filter filter, Runtime& rt, const Value& subject, Args& args);

/// Null when there is none.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

// The parts of the filter table, by subject.
const FilterTable& text_filters();
const FilterTable& sequence_filters();
const FilterTable& selection_filters();
const FilterTable& value_filters();

}  // namespace common::jinja
