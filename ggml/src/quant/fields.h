#pragma once

#include <cstdint>

/// One description of a block's layout for both directions: a format's `layout(io, row, fields)` names each field's
/// bits once; with a FieldReader the fields are filled from the block, with a FieldWriter the block from the fields.
namespace ggml::quant {

/// The integers of one block of N weights of one row, whatever order the file has them in. What they mean is the
/// format's business; a fresh object is all zeros.
template <int N>
struct Fields {
  std::uint16_t d = 0, dmin = 0;        // f16 bits
  std::uint8_t q[N] = {};               // codes
  std::uint8_t scale[N / 16 + 1] = {};  // as stored, per 16 or 32
  std::uint8_t min[N / 16] = {};
  std::uint8_t set[N / 16] = {};    // which table of values
  std::uint16_t index[N / 4] = {};  // points of a grid
  std::uint8_t sign[N / 8] = {};    // a bit per weight
};

class FieldReader {
 public:
  static constexpr bool kReads = true;
  explicit FieldReader(const std::uint8_t* block) : p_(block) {}
  /// Bits [shift, shift + width) of a byte are bits [at, at + width) of the field.
  template <class T>
  void bits(int byte, int shift, int width, T& field, int at = 0) const {
    field = static_cast<T>(field | ((p_[byte] >> shift) & ((1 << width) - 1)) << at);
  }
  template <class T>
  void byte(int byte, T& field) const {
    field = static_cast<T>(field | p_[byte]);
  }
  void half(int byte, std::uint16_t& field) const { field = static_cast<std::uint16_t>(p_[byte] | p_[byte + 1] << 8); }
  void word(int byte, std::uint32_t& field) const {
    field = static_cast<std::uint32_t>(p_[byte]) | static_cast<std::uint32_t>(p_[byte + 1]) << 8 |
            static_cast<std::uint32_t>(p_[byte + 2]) << 16 | static_cast<std::uint32_t>(p_[byte + 3]) << 24;
  }

 private:
  const std::uint8_t* p_;
};

/// Pre: the block is all zeros.
class FieldWriter {
 public:
  static constexpr bool kReads = false;
  explicit FieldWriter(std::uint8_t* block) : p_(block) {}
  template <class T>
  void bits(int byte, int shift, int width, T& field, int at = 0) const {
    p_[byte] = static_cast<std::uint8_t>(p_[byte] | ((field >> at) & ((1 << width) - 1)) << shift);
  }
  template <class T>
  void byte(int byte, T& field) const {
    p_[byte] = static_cast<std::uint8_t>(p_[byte] | (field & 255));
  }
  void half(int byte, std::uint16_t& field) const {
    p_[byte] = static_cast<std::uint8_t>(field);
    p_[byte + 1] = static_cast<std::uint8_t>(field >> 8);
  }
  void word(int byte, std::uint32_t& field) const {
    for (int i = 0; i < 4; ++i) p_[byte + i] = static_cast<std::uint8_t>(field >> 8 * i);
  }

 private:
  std::uint8_t* p_;
};

// ---------------------------------------------------------------------- the spec's arrangements of codes, at byte `at`

/// N32 of each 32: the 16 bytes hold the low nibbles' elements first.
template <class Io, class F>
void nibbles_by_16(Io io, int at, F& f, int n = 256) {
  for (int e = 0; e < n; ++e) io.bits(at + 16 * (e / 32) + e % 16, 4 * (e % 32 / 16), 4, f.q[e]);
}
/// N256b: 32 bytes hold 64 elements.
template <class Io, class F>
void nibbles_by_32(Io io, int at, F& f) {
  for (int e = 0; e < 256; ++e) io.bits(at + 32 * (e / 64) + e % 32, 4 * (e / 32 % 2), 4, f.q[e]);
}
/// T256: two bits each.
template <class Io, class F>
void pairs_by_32(Io io, int at, F& f) {
  for (int e = 0; e < 256; ++e) io.bits(at + 32 * (e / 128) + e % 32, 2 * (e / 32 % 4), 2, f.q[e]);
}
/// B256: one more bit for each code, bit `to` of it.
template <class Io, class F>
void bit_by_32(Io io, int at, F& f, int to) {
  for (int e = 0; e < 256; ++e) io.bits(at + e % 32, e / 32, 1, f.q[e], to);
}

// Interleaved rows; RN4, RN8, RT4, RB4 and RS6 of the spec for row `row` of the group.
template <class Io, class F>
void nibbles_r4(Io io, int at, int row, F& f, int n = 256) {
  for (int e = 0; e < n; ++e) {
    const int c = e % 32, byte = 64 * (e / 32) + 32 * (c / 4 % 2) + 16 * (c / 16) + 4 * row + c % 4;
    io.bits(at + byte, 4 * (c / 8 % 2), 4, f.q[e]);
  }
}
template <class Io, class F>
void nibbles_r8(Io io, int at, int row, F& f) {
  for (int e = 0; e < 32; ++e) io.bits(at + 32 * (e % 16 / 4) + 4 * row + e % 4, 4 * (e / 16), 4, f.q[e]);
}
template <class Io, class F>
void pairs_r4(Io io, int at, int row, F& f) {
  for (int e = 0; e < 256; ++e) {
    io.bits(at + 32 * (e / 32) + 16 * (e % 32 / 16) + 4 * row + e % 4, 2 * (e % 16 / 4), 2, f.q[e]);
  }
}
template <class Io, class F>
void bit_r4(Io io, int at, int row, F& f, int to) {
  for (int e = 0; e < 256; ++e) io.bits(at + 16 * (e / 32) + 4 * row + e % 4, e % 32 / 4, 1, f.q[e], to);
}
/// A scale of six bits, number `n`: low nibbles at `low`, high pairs at `high`.
template <class Io, class T>
void six_bits_r(Io io, int low, int high, int n, T& scale) {
  io.bits(low + n % 32, 4 * (n / 32), 4, scale);
  io.bits(high + n % 16, 2 * (n / 16), 2, scale, 4);
}

}  // namespace ggml::quant
