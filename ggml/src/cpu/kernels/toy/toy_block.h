#pragma once

#include <cstdint>

namespace ggml::quant {

/// Q4_0 with another order of nibbles: element e is nibble e % 2 of byte e / 2, and 7 is zero.
struct BlockToy4 {
  std::uint16_t d;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockToy4) == 18);

}  // namespace ggml::quant
