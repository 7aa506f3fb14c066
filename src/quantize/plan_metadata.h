#pragma once

#include "llama/quantize.h"

namespace llama {

/// The output's metadata: the input's, with quantisation version, file type, importance matrix, pruned layer count and
/// overrides. An override keeps the stored type of the key it replaces; a new one is u32, i32, f32, bool or string.
[[nodiscard]] ggml::gguf::Metadata output_metadata(const ggml::gguf::File& file, const QuantizeParams& params);

}  // namespace llama
