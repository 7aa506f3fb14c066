// Types whose groups of 8 or 4 weights are points of a grid, with signs apart: IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S, and
// their interleaved forms.
#include "quant/field_codec.h"
#include "quant/grid_search.h"
#include "quant/value_weights.h"

namespace ggml::quant {
namespace {

/// What GridLookup and the decoders have to know of a grid.
template <int Width, std::size_t Count, int Levels, int Bits, int Shells>
struct GridTraits {
  static constexpr int kWidth = Width, kLevels = Levels, kBits = Bits, kShells = Shells;
  static constexpr std::size_t kCount = Count;
};
inline constexpr std::int8_t kThree[] = {8, 25, 43};
inline constexpr std::int8_t kEight[] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::int8_t kOdd[] = {1, 3, 5, 7, 9, 11, 13, 15};

struct G2xxs : GridTraits<8, 256, 3, 2, 2> {
  static constexpr const auto& kGrid = kGrid2xxs;
  static constexpr const auto& kAlphabet = kThree;
};
struct G2xs : GridTraits<8, 512, 3, 2, 2> {
  static constexpr const auto& kGrid = kGrid2xs;
  static constexpr const auto& kAlphabet = kThree;
};
struct G2s : GridTraits<8, 1024, 3, 2, 2> {
  static constexpr const auto& kGrid = kGrid2s;
  static constexpr const auto& kAlphabet = kThree;
};
struct G3xxs : GridTraits<4, 256, 8, 3, 2> {
  static constexpr const auto& kGrid = kGrid3xxs;
  static constexpr const auto& kAlphabet = kEight;
};
struct G3s : GridTraits<4, 512, 8, 3, 3> {
  static constexpr const auto& kGrid = kGrid3s;
  static constexpr const auto& kAlphabet = kOdd;
};

enum class Signs : std::uint8_t { free, even };

/// Takes the signs off 8 values. Where an odd number of them is not storable the cheapest one goes wrong: its magnitude
/// becomes negative.
std::uint8_t take_signs(const float* x, const float* w, Signs signs, float* magnitude) {
  unsigned bits = 0;
  int cheapest = 0, count = 0;
  for (int j = 0; j < 8; ++j) {
    const bool minus = x[j] < 0;
    bits |= static_cast<unsigned>(minus) << j;
    count += minus;
    magnitude[j] = minus ? -x[j] : x[j];
    if (w[j] * x[j] * x[j] < w[cheapest] * x[cheapest] * x[cheapest]) cheapest = j;
  }
  if (signs == Signs::even && count % 2 != 0) {
    bits ^= 1u << cheapest;
    magnitude[cheapest] = -magnitude[cheapest];
  }
  return static_cast<std::uint8_t>(bits);
}

/// What the types share. G: the grid; Unit: weights per scale; Divisor: the grid's values are that many times too
/// large.
template <int Bytes, class G, int Unit, Signs kSigns, int Divisor>
struct GridFormat : FieldFormat<256, Bytes> {
  using F = Fields<256>;
  using Book = MagnitudeBook<G, Unit>;
  static constexpr int kGroup = Unit;
  static constexpr int kReach = G::kAlphabet[G::kLevels - 1];
  static constexpr Factors kFactors{1, 31, 2};

  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 256; e += G::kWidth) {
      const std::int8_t* point = G::kGrid.at[f.index[e / G::kWidth] % G::kCount];
      for (int j = 0; j < G::kWidth; ++j) {
        const bool minus = ((f.sign[(e + j) / 8] >> (e + j) % 8) & 1) != 0;
        code[e + j] = static_cast<std::int8_t>(minus ? -point[j] : point[j]);
      }
    }
    const float d = f16_to_f32(f.d);
    for (int g = 0; g < 16; ++g) {
      scale[g] = d * static_cast<float>(2 * f.scale[16 * g / Unit] + 1) * (1.0f / Divisor);
      add[g] = 0;
    }
  }

  static float encode(const float* x, const float* importance, std::int64_t k, F* fields) {
    for (std::int64_t b = 0; b < k / 256; ++b) {
      encode_block(x + 256 * b, importance != nullptr ? importance + 256 * b : nullptr, fields[b]);
    }
    return 0;
  }

  static void encode_block(const float* x, const float* importance, F& f) {
    float w[256], magnitude[256];
    search_weights(x, importance, (kSigns == Signs::even && G::kWidth == 8 ? 1 : 2) * mean_square(x, 256), 256, w);
    for (int g = 0; g < 32; ++g) f.sign[g] = take_signs(x + 8 * g, w + 8 * g, kSigns, magnitude + 8 * g);
    ValueSearch<Book> search(magnitude, w, 256, f.q);
    const auto store = [](float d) { return f16_to_f32(f32_to_f16(d * Divisor)) / Divisor; };
    f.d = f32_to_f16(search.fit(kFactors, store) * Divisor);
    for (std::size_t u = 0; u < search.units().size(); ++u) {
      f.scale[u] = static_cast<std::uint8_t>(std::max(search.units()[u].factor - 1, 0) / 2);
    }
    if (f.d == 0) return;  // index 0 is as good as any
    for (int i = 0; i < 256 / G::kWidth; ++i) f.index[i] = Book::lookup().index(f.q + i * G::kWidth);
  }
};

/// Seven bits per group of signs and four of scale in one word per 32.
template <class Io, class F>
void signs_and_scale(Io io, int at, int b, F& f) {
  std::uint32_t word = 0;
  if constexpr (Io::kReads) {
    io.word(at, word);
    for (int i = 0; i < 4; ++i) f.sign[4 * b + i] = even_signs((word >> 7 * i) & 127);
    f.scale[b] = static_cast<std::uint8_t>(word >> 28);
  } else {
    for (int i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(f.sign[4 * b + i] & 127) << 7 * i;
    word |= static_cast<std::uint32_t>(f.scale[b]) << 28;
    io.word(at, word);
  }
}

/// The same of one row of four: a byte per group has a bit of the scale and the signs in Gray code.
template <class Io, class F>
void gray_signs_and_scale(Io io, int at, int b, int row, F& f) {
  for (int i = 0; i < 4; ++i) {
    const int byte = at + 16 * b + 4 * row + i;
    unsigned v = 0;
    if constexpr (Io::kReads) {
      io.byte(byte, v);
      f.scale[b] = static_cast<std::uint8_t>(f.scale[b] | (v & 1) << i);
      f.sign[4 * b + i] = static_cast<std::uint8_t>((v & 254) ^ ((v & 254) >> 1));
    } else {
      v = f.sign[4 * b + i];
      for (const int shift : {1, 2, 4}) v ^= v >> shift;  // bit 0 becomes the parity, which is even
      v = (v & 254) | ((static_cast<unsigned>(f.scale[b]) >> i) & 1);
      io.byte(byte, v);
    }
  }
}

struct IQ2_XXS : GridFormat<66, G2xxs, 32, Signs::even, 8> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int b = 0; b < 8; ++b) {
      for (int i = 0; i < 4; ++i) io.byte(2 + 8 * b + i, f.index[4 * b + i]);
      signs_and_scale(io, 6 + 8 * b, b, f);
    }
  }
};

struct IQ2_XXS_R4 : IQ2_XXS {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    for (int b = 0; b < 8; ++b) {
      gray_signs_and_scale(io, 8, b, row, f);
      for (int i = 0; i < 4; ++i) io.byte(136 + 16 * b + 4 * row + i, f.index[4 * b + i]);
    }
  }
};

struct IQ2_XS : GridFormat<74, G2xs, 16, Signs::even, 8> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int g = 0; g < 32; ++g) {
      io.byte(2 + 2 * g, f.index[g]);
      io.bits(3 + 2 * g, 0, 1, f.index[g], 8);
      io.bits(3 + 2 * g, 1, 7, f.sign[g]);
      if constexpr (Io::kReads) f.sign[g] = even_signs(f.sign[g]);
    }
    for (int u = 0; u < 16; ++u) io.bits(66 + u / 2, 4 * (u % 2), 4, f.scale[u]);
  }
};

struct IQ2_XS_R4 : IQ2_XS {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    for (int g = 0; g < 32; ++g) {
      const int at = 8 + 2 * (16 * (g / 4) + 4 * row + g % 4);
      io.byte(at, f.index[g]);
      io.bits(at + 1, 0, 1, f.index[g], 8);
      unsigned u = f.sign[g];
      if constexpr (Io::kReads) {
        io.bits(at + 1, 1, 7, u);
        f.sign[g] = static_cast<std::uint8_t>(u ^ u << 1);
      } else {
        for (const int shift : {1, 2, 4}) u ^= u << shift;  // bit 7 becomes the parity, which is even
        io.bits(at + 1, 1, 7, u);
      }
    }
    for (int u = 0; u < 16; ++u) io.bits(264 + 4 * (u / 2) + row, 4 * (u % 2), 4, f.scale[u]);
  }
};

struct IQ2_S : GridFormat<82, G2s, 16, Signs::free, 8> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int g = 0; g < 32; ++g) {
      io.byte(2 + g, f.index[g]);
      io.bits(66 + g / 4, 2 * (g % 4), 2, f.index[g], 8);
      io.byte(34 + g, f.sign[g]);
    }
    for (int u = 0; u < 16; ++u) io.bits(74 + u / 2, 4 * (u % 2), 4, f.scale[u]);
  }
};

struct IQ2_S_R4 : IQ2_S {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    for (int g = 0; g < 32; ++g) {
      const int at = 16 * (g / 4) + 4 * row + g % 4;
      io.byte(8 + at, f.index[g]);
      io.bits(136 + 4 * (g / 4) + row, 2 * (g % 4), 2, f.index[g], 8);
      io.byte(168 + at, f.sign[g]);
    }
    for (int u = 0; u < 16; ++u) io.bits(296 + 4 * (u / 2) + row, 4 * (u % 2), 4, f.scale[u]);
  }
};

struct IQ3_XXS : GridFormat<98, G3xxs, 32, Signs::even, 4> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int h = 0; h < 64; ++h) io.byte(2 + h, f.index[h]);
    for (int b = 0; b < 8; ++b) signs_and_scale(io, 66 + 4 * b, b, f);
  }
};

struct IQ3_XXS_R4 : IQ3_XXS {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    for (int b = 0; b < 8; ++b) gray_signs_and_scale(io, 8, b, row, f);
    for (int h = 0; h < 64; ++h) io.byte(136 + 32 * (h / 8) + 8 * row + h % 8, f.index[h]);
  }
};

struct IQ3_S : GridFormat<110, G3s, 32, Signs::free, 1> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int h = 0; h < 64; ++h) {
      io.byte(2 + h, f.index[h]);
      io.bits(66 + h / 8, h % 8, 1, f.index[h], 8);
    }
    for (int g = 0; g < 32; ++g) io.byte(74 + g, f.sign[g]);
    for (int b = 0; b < 8; ++b) io.bits(106 + b / 2, 4 * (b % 2), 4, f.scale[b]);
  }
};

struct IQ3_S_R4 : IQ3_S {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    for (int h = 0; h < 64; ++h) {
      const int b = h / 8, c = h % 8;
      io.byte(8 + 32 * b + 8 * (c % 4) + 4 * (c / 4) + row, f.index[h]);
      io.bits(264 + 4 * b + row, c, 1, f.index[h], 8);
      for (int j = 0; j < 4; ++j) io.bits(296 + 16 * b + 4 * row + j, c, 1, f.sign[h / 2], 4 * (h % 2) + j);
    }
    for (int b = 0; b < 8; ++b) {
      const int n = 4 * b + row;
      io.bits(424 + n % 16, 4 * (n / 16), 4, f.scale[b]);
    }
  }
};

}  // namespace

const WeightCodec k_codec_iq2_xxs = FieldCodec<IQ2_XXS>::kCodec;
const WeightCodec k_codec_iq2_xxs_r4 = FieldCodec<IQ2_XXS_R4, IQ2_XXS>::kCodec;
const WeightCodec k_codec_iq2_xs = FieldCodec<IQ2_XS>::kCodec;
const WeightCodec k_codec_iq2_xs_r4 = FieldCodec<IQ2_XS_R4, IQ2_XS>::kCodec;
const WeightCodec k_codec_iq2_s = FieldCodec<IQ2_S>::kCodec;
const WeightCodec k_codec_iq2_s_r4 = FieldCodec<IQ2_S_R4, IQ2_S>::kCodec;
const WeightCodec k_codec_iq3_xxs = FieldCodec<IQ3_XXS>::kCodec;
const WeightCodec k_codec_iq3_xxs_r4 = FieldCodec<IQ3_XXS_R4, IQ3_XXS>::kCodec;
const WeightCodec k_codec_iq3_s = FieldCodec<IQ3_S>::kCodec;
const WeightCodec k_codec_iq3_s_r4 = FieldCodec<IQ3_S_R4, IQ3_S>::kCodec;

}  // namespace ggml::quant
