#pragma once

#include "common/args/settings.h"
#include "ggml/log.h"

namespace common {

/// Installs the log of the process as ggml's sink: stderr (coloured on a terminal only) and, if asked for, a file.
///
/// Verbosity 0 prints nothing but the program's own output, 1 errors, 2 warnings, 3 info, 4 debug, 5 and above also
/// trace. Throws ggml::Error (io) when the log file cannot be opened. Call once per process, before threads start.
void init_log(const LogSettings& settings);

/// Writes out everything that is buffered; also done at exit.
void flush_log();

/// True when stderr is a terminal (progress bars) and colours are wanted there.
[[nodiscard]] bool stderr_is_terminal();
[[nodiscard]] bool log_uses_colors();

}  // namespace common
