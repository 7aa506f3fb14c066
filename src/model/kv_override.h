#pragma once

#include <span>

#include "ggml/gguf.h"
#include "llama/model.h"

namespace llama {

/// Replaces metadata as --override-kv asks. Throws Error(invalid_argument) naming the key and what is wrong with it.
void apply_overrides(std::span<const KvOverride> overrides, ggml::gguf::Metadata& metadata);

}  // namespace llama
