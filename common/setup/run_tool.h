#pragma once

#include "common/args/args.h"

namespace common {

/// main() of a tool: reads the arguments, runs `run`, and turns what it throws, or standard output that could not be
/// written, into one line on the log and exit status 1.
[[nodiscard]] int run_tool(Tool tool, int argc, const char* const* argv, int (*run)(const Settings& settings));

}  // namespace common
