#pragma once

#include "common/args/args.h"

namespace common {

/// Guides still call llama-cli and llama-bench by older names, `main` and `benchmark`: links that print one line which
/// says the new name. With --port or --host `main` meant the server, and becomes llama-server, which lies beside it.
/// Throws Error(io) when that cannot be started.
void follow_old_name(Tool tool, int argc, const char* const* argv);

}  // namespace common
