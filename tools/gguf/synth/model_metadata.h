#pragma once

#include "ggml/gguf.h"
#include "mix.h"
#include "preset.h"

namespace gguf_tool {

/// All keys of a synthetic model: general, architecture, and a small tokenizer (byte-level BPE of 256 bytes, fillers
/// and three special tokens at the end).
[[nodiscard]] ggml::gguf::Metadata model_metadata(const Preset& preset, const Mix& mix);

}  // namespace gguf_tool
