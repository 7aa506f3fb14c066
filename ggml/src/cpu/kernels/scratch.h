#pragma once

#include <cstdint>

/// The size of a thread's scratch, known to the ISA units (which check that they fit) and to matmul_scratch_bytes().
namespace ggml::cpu {

inline constexpr std::int64_t kMaxTileRows = 32;    // rows of weights in a tile, largest over all ISA levels
inline constexpr std::int64_t kMaxBlockRows = 512;  // activation rows that share a decoded tile
/// A panel of 256 columns as f32 or codes, and the scales and minima that go with it.
inline constexpr std::int64_t kMatmulScratchBase = (256 + 16 + 8) * kMaxTileRows * 4;

}  // namespace ggml::cpu
