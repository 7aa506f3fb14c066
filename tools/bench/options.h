#pragma once

#include "grid.h"

namespace bench {

/// The grid when nothing is given.
[[nodiscard]] Grid default_grid();

enum class Action : std::uint8_t { run, exit_success };

/// Reads the command line of llama-bench, which has a table of its own: its options take lists. Prints --help and
/// --version itself. Throws Error(invalid_argument | unsupported).
[[nodiscard]] Action parse_options(int argc, const char* const* argv, Grid& grid);

}  // namespace bench
