#pragma once

#include <string>

#include "common/args/option.h"

namespace common {

/// Help of one option, wrapped, ending with a newline.
[[nodiscard]] std::string option_help(const Option& row, int width);
/// A script for bash that completes the options of one program.
[[nodiscard]] std::string bash_completion(Tool tool);

}  // namespace common
