// Types whose codes choose from a table of values, with one scale per block: IQ4_NL IQ4_XS IQ2_K .. IQ6_K, and their
// interleaved forms.
#include "quant/field_codec.h"
#include "quant/grids.h"
#include "quant/rounding.h"
#include "quant/value_search.h"
#include "quant/value_weights.h"

namespace ggml::quant {
namespace {

// ------------------------------------------------------------------------------------------------------ blocks of 32

struct IQ4_NL : FieldFormat<32, 18> {
  using Book = ScalarBook<kValues4, 16, 1, 32>;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    nibbles_by_16(io, 2, f, 32);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 32; ++e) code[e] = kValues4[f.q[e]];
    set_scale(f16_to_f32(f.d), scale, add);
  }
  static float encode(const float* x, const float* importance, std::int64_t k, F* fields) {
    const float sigma2 = 2 * mean_square(x, k);
    for (std::int64_t b = 0; b < k / 32; ++b) {
      const float* xb = x + 32 * b;
      float w[32];
      search_weights(xb, importance != nullptr ? importance + 32 * b : nullptr, sigma2, 32, w);
      ValueSearch<Book> search(xb, w, 32, fields[b].q);
      const float d = as_half(search.fit_units());
      fields[b].d = f32_to_f16(d);
      Book::assign(xb, w, d != 0 ? 1 / d : 0, 0, fields[b].q);
    }
    return 0;
  }
};

struct IQ4_NL_R4 : IQ4_NL {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    nibbles_r4(io, 8, row, f, 32);
  }
};

// ------------------------------------------------------------------------------------- blocks of 256, one scale each

/// T: the format, with kFactors and `stored(factor)`, which is what goes into scale[] (and `sign`, where the factor's
/// sign is apart).
template <class T, class Book>
void encode_blocks(const float* x, const float* importance, std::int64_t k, typename T::F* fields) {
  for (std::int64_t b = 0; b < k / 256; ++b) {
    const float* xb = x + 256 * b;
    float w[256];
    search_weights(xb, importance != nullptr ? importance + 256 * b : nullptr, 2 * mean_square(xb, 256), 256, w);
    ValueSearch<Book> search(xb, w, 256, fields[b].q);
    fields[b].d = f32_to_f16(search.fit(T::kFactors, as_half));
    for (std::size_t u = 0; u < search.units().size(); ++u) {
      T::store(search.units()[u].factor, fields[b], u);
      fields[b].set[u] = static_cast<std::uint8_t>(search.units()[u].set);
    }
  }
}

/// values() of what has d, a factor per unit and codes.
template <class T, class Book, class F>
void decode_block(const F& f, std::int8_t* code, float* scale, float* add) {
  const float d = f16_to_f32(f.d);
  for (int g = 0; g < 16; ++g) {
    const int unit = 16 * g / Book::kUnit;
    for (int i = 0; i < 16; ++i) {
      code[16 * g + i] = static_cast<std::int8_t>(Book::value(f.q + 16 * g, i, f.set[unit]));
    }
    scale[g] = d * static_cast<float>(T::factor(f, unit));
    add[g] = 0;
  }
}

struct IQ4_XS : FieldFormat<256, 136> {
  using Book = ScalarBook<kValues4, 16, 1, 32>;
  static constexpr Factors kFactors{-32, 31, 1};
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int k = 0; k < 8; ++k) {
      io.bits(4 + k / 2, 4 * (k % 2), 4, f.scale[k]);
      io.bits(2 + k / 4, 2 * (k % 4), 2, f.scale[k], 4);
    }
    nibbles_by_16(io, 8, f);
  }
  static int factor(const F& f, int unit) { return f.scale[unit] - 32; }
  static void store(int factor, F& f, std::size_t unit) { f.scale[unit] = static_cast<std::uint8_t>(factor + 32); }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    decode_block<IQ4_XS, Book>(f, code, scale, add);
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    encode_blocks<IQ4_XS, Book>(x, w, k, fields);
    return 0;
  }
};

struct IQ4_XS_R8 : IQ4_XS {
  static constexpr int kRows = 8;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    for (int k = 0; k < 8; ++k) six_bits_r(io, 32, 16, 8 * k + row, f.scale[k]);
    for (int e = 0; e < 256; ++e) {
      io.bits(64 + 128 * (e / 32) + 32 * (e % 32 / 8) + 4 * row + e % 4, 4 * (e / 4 % 2), 4, f.q[e]);
    }
  }
};

/// Bit `unit` of a word of 16 says which table.
template <class Io, class F>
void table_bits(Io io, int at, F& f) {
  for (int k = 0; k < 16; ++k) io.bits(at + k / 8, k % 8, 1, f.set[k]);
}
/// The same of one row of four.
template <class Io, class F>
void table_bits_r4(Io io, int row, F& f) {
  for (int k = 0; k < 16; ++k) io.bits(8 + 4 * (k % 2) + row, k / 2, 1, f.set[k]);
}
/// Sixteen nibbles in order.
template <class Io, class F>
void scale_nibbles(Io io, int at, F& f) {
  for (int k = 0; k < 16; ++k) io.bits(at + k / 2, 4 * (k % 2), 4, f.scale[k]);
}
template <class Io, class F>
void scale_nibbles_r4(Io io, int at, int row, F& f) {
  for (int k = 0; k < 16; ++k) io.bits(at + (4 * k + row) % 32, 4 * ((4 * k + row) / 32), 4, f.scale[k]);
}

struct IQ2_K : FieldFormat<256, 76> {
  static constexpr int kReach = 31, kGroup = 16;
  using Book = ScalarBook<kValues2, 4, 2, 16>;
  static constexpr Factors kFactors{-8, 7, 1};
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    table_bits(io, 2, f);
    scale_nibbles(io, 4, f);
    pairs_by_32(io, 12, f);
  }
  static int factor(const F& f, int unit) { return f.scale[unit] - 8; }
  static void store(int factor, F& f, std::size_t unit) { f.scale[unit] = static_cast<std::uint8_t>(factor + 8); }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    decode_block<IQ2_K, Book>(f, code, scale, add);
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    encode_blocks<IQ2_K, Book>(x, w, k, fields);
    return 0;
  }
};

struct IQ2_K_R4 : IQ2_K {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    table_bits_r4(io, row, f);
    scale_nibbles_r4(io, 16, row, f);
    pairs_r4(io, 48, row, f);
  }
};

struct IQ3_K : FieldFormat<256, 110> {
  static constexpr int kReach = 64, kGroup = 16;
  using Book = ScalarBook<kValues3, 8, 2, 16>;
  static constexpr Factors kFactors{-31, 31, 2};
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    table_bits(io, 2, f);
    for (int k = 0; k < 16; ++k) io.bits(4 + k / 8, k % 8, 1, f.min[k]);  // the factor's sign
    scale_nibbles(io, 6, f);
    pairs_by_32(io, 14, f);
    bit_by_32(io, 78, f, 2);
  }
  static int factor(const F& f, int unit) { return (2 * f.scale[unit] + 1) * (f.min[unit] != 0 ? -1 : 1); }
  static void store(int factor, F& f, std::size_t unit) {
    f.scale[unit] = static_cast<std::uint8_t>((std::abs(factor) - 1) / 2);
    f.min[unit] = factor < 0;
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    decode_block<IQ3_K, Book>(f, code, scale, add);
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    encode_blocks<IQ3_K, Book>(x, w, k, fields);
    return 0;
  }
};

struct IQ3_K_R4 : IQ3_K {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    table_bits_r4(io, row, f);
    for (int k = 0; k < 16; ++k) io.bits(16 + (4 * k + row) % 8, (4 * k + row) / 8, 1, f.min[k]);
    scale_nibbles_r4(io, 24, row, f);
    pairs_r4(io, 56, row, f);
    bit_r4(io, 312, row, f, 2);
  }
};

/// Six-bit scales around 32, as IQ4_K and IQ5_K have them.
template <int Bytes, class B>
struct SixBitScales : FieldFormat<256, Bytes> {
  using F = Fields<256>;
  using Book = B;
  static constexpr int kGroup = 16;
  static constexpr Factors kFactors{-32, 31, 1};
  template <class Io>
  static void head(Io io, F& f) {
    io.half(0, f.d);
    table_bits(io, 2, f);
    scale_nibbles(io, 8, f);
    for (int k = 0; k < 16; ++k) io.bits(4 + k / 4, 2 * (k % 4), 2, f.scale[k], 4);
  }
  template <class Io>
  static void head_r4(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    table_bits_r4(io, row, f);
    for (int k = 0; k < 16; ++k) six_bits_r(io, 32, 16, 4 * k + row, f.scale[k]);
  }
  static int factor(const F& f, int unit) { return f.scale[unit] - 32; }
  static void store(int factor, F& f, std::size_t unit) { f.scale[unit] = static_cast<std::uint8_t>(factor + 32); }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    decode_block<SixBitScales, Book>(f, code, scale, add);
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    encode_blocks<SixBitScales, Book>(x, w, k, fields);
    return 0;
  }
};

struct IQ4_K : SixBitScales<144, ScalarBook<kValues4, 16, 2, 16>> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    head(io, f);
    nibbles_by_16(io, 16, f);
  }
};

struct IQ4_K_R4 : IQ4_K {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    head_r4(io, row, f);
    nibbles_r4(io, 64, row, f);
  }
};

struct IQ5_K : SixBitScales<176, ScalarBook<kValues5, 32, 2, 16>> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    head(io, f);
    nibbles_by_32(io, 16, f);
    bit_by_32(io, 144, f, 4);
  }
};

struct IQ5_K_R4 : IQ5_K {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    head_r4(io, row, f);
    nibbles_r4(io, 64, row, f);
    for (int e = 0; e < 256; ++e) {
      io.bits(576 + 16 * (e / 32) + 4 * row + e % 4, 4 * (e / 4 % 2) + 2 * (e % 32 / 16) + e / 8 % 2, 1, f.q[e], 4);
    }
  }
};

struct IQ6_K : FieldFormat<256, 212> {
  static constexpr int kGroup = 16;
  using Book = ScalarBook<kValues6, 64, 2, 16>;
  static constexpr Factors kFactors{-128, 127, 1};
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    table_bits(io, 2, f);
    for (int k = 0; k < 16; ++k) io.byte(4 + k, f.scale[k]);
    nibbles_by_32(io, 20, f);
    for (int e = 0; e < 256; ++e) io.bits(148 + 32 * (e / 128) + e % 32, 2 * (e / 32 % 4), 2, f.q[e], 4);
  }
  static int factor(const F& f, int unit) { return static_cast<std::int8_t>(f.scale[unit]); }
  static void store(int factor, F& f, std::size_t unit) { f.scale[unit] = static_cast<std::uint8_t>(factor & 255); }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    decode_block<IQ6_K, Book>(f, code, scale, add);
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    encode_blocks<IQ6_K, Book>(x, w, k, fields);
    return 0;
  }
};

/// The reference decodes this type with a polynomial, of which the table that products use is the rounded form.
void dequantise_iq6(const std::byte* group, int /*row*/, std::int64_t k, float* dst) noexcept {
  constexpr float kA = -127, kB = 6.2568f, kC = -0.11218f, kD = 0.0011972f;
  for (std::int64_t b = 0; b < k / 256; ++b) {
    IQ6_K::F f;
    IQ6_K::layout(FieldReader(FieldCodec<IQ6_K>::block_at(group, b)), 0, f);
    for (int e = 0; e < 256; ++e) {
      const auto q = static_cast<float>(f.q[e]);
      const float v = std::fma(q, std::fma(q, std::fma(q, kD, kC), kB), kA) + static_cast<float>(f.set[e / 16]);
      dst[256 * b + e] = f16_to_f32(f.d) * static_cast<float>(IQ6_K::factor(f, e / 16)) * v;
    }
  }
}

constexpr WeightCodec iq6_codec() {
  WeightCodec codec = FieldCodec<IQ6_K>::kCodec;
  codec.dequantise = dequantise_iq6;
  return codec;
}
constexpr WeightCodec kIq6Codec = iq6_codec();

}  // namespace

const WeightCodec k_codec_iq4_nl = FieldCodec<IQ4_NL>::kCodec;
const WeightCodec k_codec_iq4_nl_r4 = FieldCodec<IQ4_NL_R4, IQ4_NL>::kCodec;
const WeightCodec k_codec_iq4_xs = FieldCodec<IQ4_XS>::kCodec;
const WeightCodec k_codec_iq4_xs_r8 = FieldCodec<IQ4_XS_R8, IQ4_XS>::kCodec;
const WeightCodec k_codec_iq2_k = FieldCodec<IQ2_K>::kCodec;
const WeightCodec k_codec_iq2_k_r4 = FieldCodec<IQ2_K_R4, IQ2_K>::kCodec;
const WeightCodec k_codec_iq3_k = FieldCodec<IQ3_K>::kCodec;
const WeightCodec k_codec_iq3_k_r4 = FieldCodec<IQ3_K_R4, IQ3_K>::kCodec;
const WeightCodec k_codec_iq4_k = FieldCodec<IQ4_K>::kCodec;
const WeightCodec k_codec_iq4_k_r4 = FieldCodec<IQ4_K_R4, IQ4_K>::kCodec;
const WeightCodec k_codec_iq5_k = FieldCodec<IQ5_K>::kCodec;
const WeightCodec k_codec_iq5_k_r4 = FieldCodec<IQ5_K_R4, IQ5_K>::kCodec;
const WeightCodec k_codec_iq6_k = kIq6Codec;

}  // namespace ggml::quant
