#pragma once

#include <string>

#include "llama/importance.h"

namespace llama {

/// Reads the format without magic: counts, names and values in a row. Throws Error(invalid_file).
[[nodiscard]] ImportanceMatrix load_legacy_importance(const std::string& path);

}  // namespace llama
