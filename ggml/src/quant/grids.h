#pragma once

#include <cstddef>
#include <cstdint>

/// The points of the codebook types: groups of 8 (or 4) magnitudes that one index stands for.
namespace ggml::quant {

template <int kWidth, std::size_t kCount>
struct alignas(16) Grid {
  std::int8_t at[kCount][kWidth];
};

extern const Grid<8, 256> kGrid2xxs;  // magnitudes 8, 25, 43
extern const Grid<8, 512> kGrid2xs;
extern const Grid<8, 1024> kGrid2s;
extern const Grid<4, 256> kGrid3xxs;  // magnitudes 4, 12, .. 62
extern const Grid<4, 512> kGrid3s;    // odd numbers up to 15
extern const Grid<8, 2048> kGrid1s;   // -1, 0, 1

/// The byte of eight signs that seven stored ones stand for: an even number of them is set.
[[nodiscard]] constexpr std::uint8_t even_signs(unsigned seven) noexcept {
  unsigned parity = seven ^ (seven >> 4);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return static_cast<std::uint8_t>(seven | (parity & 1) << 7);
}

// Tables of values that codes stand for; where there are two sets the second one is the first shifted up. Not inline:
// kernels for several ISA levels include them, and nothing of theirs may be merged by the linker.
constexpr std::int8_t kValues2[] = {
    -31, -13, 1, 17, -26, -8, 6, 22,
};
constexpr std::int8_t kValues3[] = {
    -63, -40, -23, -10, 1, 13, 28, 47, -59, -36, -19, -6, 5, 17, 32, 51,
};
constexpr std::int8_t kValues4[] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
    -123, -100, -79, -61, -45, -31, -18, -6,  5, 17, 29, 42, 57, 73, 93, 117,
};
constexpr std::int8_t kValues5[] = {
    -126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36,  -30,  -24,  -18, -12, -6,  -1,  5,   11,  17,  23,  29,
    36,   43,   51,   59,  68,  77,  87,  97,  109, 121, -124, -112, -101, -90, -81, -72, -63, -55, -48, -41, -34, -28,
    -22,  -16,  -10,  -4,  1,   7,   13,  19,  25,  31,  38,   45,   53,   61,  70,  79,  89,  99,  111, 123,
};
constexpr std::int8_t kValues6[] = {
    -127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54, -51, -47, -44, -40, -37,  -34,
    -31,  -28,  -25,  -22,  -19,  -16, -13, -11, -8,  -5,  -2,  0,   3,   6,   9,   12,  14,  17,  20,  23,  27,   30,
    33,   36,   40,   44,   47,   51,  55,  59,  63,  68,  72,  77,  82,  87,  92,  98,  103, 109, 115, 121, -126, -120,
    -114, -108, -103, -97,  -92,  -87, -83, -78, -73, -69, -65, -61, -57, -53, -50, -46, -43, -39, -36, -33, -30,  -27,
    -24,  -21,  -18,  -15,  -12,  -10, -7,  -4,  -1,  1,   4,   7,   10,  13,  15,  18,  21,  24,  28,  31,  34,   37,
    41,   45,   48,   52,   56,   60,  64,  69,  73,  78,  83,  88,  93,  99,  104, 110, 116, 122,
};
constexpr std::int8_t kPairs[] = {
    -63, -23, -63, 13, -40, -63, -40, -10, -40, 13,  -40, 47,  -23, -40, -23, -23, -23, 1,   -23, 13,  -23, 28,
    -10, -63, -10, 1,  -10, 13,  -10, 47,  1,   -23, 1,   -10, 1,   1,   1,   13,  1,   28,  13,  -40, 13,  -23,
    13,  -10, 13,  1,  13,  13,  28,  -63, 28,  -23, 28,  1,   28,  28,  28,  47,  47,  -23, 47,  13,
};
constexpr std::int8_t kFp4[] = {
    0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12,
};

}  // namespace ggml::quant
