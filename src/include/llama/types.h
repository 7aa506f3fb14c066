#pragma once

#include <cstdint>

namespace llama {

/// A position in the vocabulary. A plain integer, because it travels through GGUF, JSON and index arithmetic
/// everywhere.
using Token = std::int32_t;
inline constexpr Token kNoToken = -1;

}  // namespace llama
