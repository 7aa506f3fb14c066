#pragma once

#include <string_view>

namespace common {

/// Writes out what stdio holds for standard output. Throws ggml::Error (io) when that, or any earlier write to it,
/// failed: half an answer must not end as a success.
void flush_standard_output();

/// Writes `text` to standard output at once. Throws as flush_standard_output() does.
void write_standard_output(std::string_view text);

}  // namespace common
