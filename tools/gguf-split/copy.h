#pragma once

#include <atomic>
#include <string>

#include "ggml/gguf.h"
#include "ggml/split_writer.h"

namespace gguf_split {

/// A description of the whole model in `file`, as one file.
[[nodiscard]] ggml::gguf::SplitModel describe(const ggml::gguf::File& file);

/// Copies all tensors of `source` to `writer` and finishes it, with a progress bar. Throws Error(cancelled) when
/// `stop` is set meanwhile, Error(exceeds_limit) when the output does not fit on its disk.
void copy_model(const ggml::gguf::File& source, ggml::gguf::SplitWriter& writer, const std::atomic<bool>& stop);

}  // namespace gguf_split
