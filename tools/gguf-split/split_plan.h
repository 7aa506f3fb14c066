#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/args/settings.h"
#include "ggml/gguf.h"

namespace gguf_split {

/// Tensors of each part, in the order of the file. A part is closed before the tensor that would make it too large or
/// too full; its size counts headers too, so that only a part with a single tensor can exceed the bound.
[[nodiscard]] std::vector<std::size_t> plan_parts(const ggml::gguf::File& file,
                                                  const common::GgufSplitSettings& wanted);

}  // namespace gguf_split
