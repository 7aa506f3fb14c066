#pragma once

#include <set>
#include <string_view>

#include "common/args/option.h"

namespace common {

/// Settles what one option alone cannot: limits between fields, defaults that depend on others, escapes in prompts.
/// `given`: long names of the options on the command line. Throws ggml::Error.
void check_settings(Tool tool, const std::set<std::string_view>& given, Target& target);

/// Throws ggml::Error when a program that loads a model was given none.
void check_model_given(Tool tool, const Settings& settings);

}  // namespace common
