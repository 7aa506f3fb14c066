#pragma once

#include <atomic>

#include "common/args/settings.h"

namespace imatrix {

/// Does what the command line asks: reads the text, merges files, or prints statistics. When `stop` is set, writes what
/// was collected so far and returns false.
[[nodiscard]] bool run(const common::Settings& settings, const std::atomic<bool>& stop);

}  // namespace imatrix
