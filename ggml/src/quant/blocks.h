#pragma once

#include <cstdint>

/// The blocks of the quantised types exactly as they lie in GGUF files (little endian, packed, 2-byte aligned at most).
namespace ggml::quant {

inline constexpr int kSuperBlock = 256;  // weights in a block of the K types

/// Every field is bytes or 16-bit words, so no compiler pads these; the asserts say that the file format decides.
struct BlockQ4_0 {
  std::uint16_t d;  // f16 bits
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

struct BlockQ4_1 {
  std::uint16_t d, m;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

struct BlockQ5_0 {
  std::uint16_t d;
  std::uint16_t qh[2];  // one u32, bit e = fifth bit of element e
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

struct BlockQ5_1 {
  std::uint16_t d, m;
  std::uint16_t qh[2];
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

struct BlockQ8_0 {
  std::uint16_t d;
  std::int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

struct BlockQ4_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12];  // eight 6-bit scales and eight 6-bit minima
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

struct BlockQ5_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

struct BlockQ6_K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

}  // namespace ggml::quant

#ifdef TANDEM_EXTRA_BLOCKS
#include TANDEM_EXTRA_BLOCKS  // the toy type of the tests
#endif
