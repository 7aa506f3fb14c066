// Types of -1, 0, 1 on a grid with a shift of an eighth: IQ1_S IQ1_M, and their relatives in interleaved rows, which
// are types of their own (blocks of 32, the scale in front of the row).
#include "quant/field_codec.h"
#include "quant/grid_search.h"
#include "quant/value_weights.h"

namespace ggml::quant {
namespace {

constexpr float kEighth = 0.125f;  // codes are in eighths

inline constexpr std::int8_t kTernary[] = {-1, 0, 1};
struct G1s {
  static constexpr int kWidth = 8, kLevels = 3, kBits = 2, kShells = 3;
  static constexpr std::size_t kCount = 2048;
  static constexpr const auto& kGrid = kGrid1s;
  static constexpr const auto& kAlphabet = kTernary;
};
using BookS = ShiftedBook<G1s, 32, 32>;
using BookM = ShiftedBook<G1s, 16, 8>;

/// Codes in eighths; bit 0 of sign[g] says that group g is shifted down.
template <class F>
void shifted_codes(const F& f, int n, std::int8_t* code) {
  for (int e = 0; e < n; ++e) {
    const auto level = static_cast<int>(kGrid1s.at[f.index[e / 8] % G1s::kCount][e % 8]);
    code[e] = static_cast<std::int8_t>(8 * level + (f.sign[e / 8] != 0 ? -1 : 1));
  }
}

/// The half that the file keeps is eight times what multiplies the codes.
[[nodiscard]] float as_eighth_of_half(float d) {
  return f16_to_f32(f32_to_f16(8 * d)) / 8;
}

/// Points of the grid and shifts, from the search's levels and tables. `at` is where the fields start in the row.
template <class Book, class F>
void store_points(const ValueSearch<Book>& search, const std::uint8_t* q, std::size_t at, int n, F& f) {
  for (int e = 0; e < n; e += 8) {
    const UnitCode& unit = search.units()[(at + static_cast<std::size_t>(e)) / Book::kUnit];
    f.index[e / 8] = Book::lookup().index(q + e);
    f.sign[e / 8] = Book::shift(e % Book::kUnit, unit.set) < 0;
  }
}

struct IQ1_S : FieldFormat<256, 50> {
  static constexpr int kReach = 9;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int g = 0; g < 32; ++g) io.byte(2 + g, f.index[g]);
    for (int b = 0; b < 8; ++b) high_bits(io, 34 + 2 * b, b, f);
  }
  /// The word of 32 weights: three bits for each of four points, the scale, the shift.
  template <class Io, class Any>
  static void high_bits(Io io, int at, int b, Any& f) {
    std::uint16_t word = 0;
    if constexpr (Io::kReads) {
      io.half(at, word);
      for (int i = 0; i < 4; ++i) {
        f.index[4 * b + i] = static_cast<std::uint16_t>(f.index[4 * b + i] | ((word >> 3 * i) & 7) << 8);
        f.sign[4 * b + i] = static_cast<std::uint8_t>(word >> 15);
      }
      f.scale[b] = static_cast<std::uint8_t>((word >> 12) & 7);
    } else {
      unsigned bits = static_cast<unsigned>(f.scale[b]) << 12 | static_cast<unsigned>(f.sign[4 * b]) << 15;
      for (int i = 0; i < 4; ++i) bits |= static_cast<unsigned>(f.index[4 * b + i] >> 8) << 3 * i;
      word = static_cast<std::uint16_t>(bits);
      io.half(at, word);
    }
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    shifted_codes(f, 256, code);
    const float d = f16_to_f32(f.d);
    for (int b = 0; b < 8; ++b) {
      set_scale(d * static_cast<float>(2 * f.scale[b] + 1) * kEighth, scale + 2 * b, add + 2 * b);
    }
  }
  static float encode(const float* x, const float* importance, std::int64_t k, F* fields) {
    for (std::int64_t b = 0; b < k / 256; ++b) {
      F& f = fields[b];
      const float* xb = x + 256 * b;
      float w[256];
      search_weights(xb, importance != nullptr ? importance + 256 * b : nullptr, 2 * mean_square(xb, 256), 256, w);
      ValueSearch<BookS> search(xb, w, 256, f.q);
      const float d = search.fit({1, 15, 2}, as_eighth_of_half);
      f.d = f32_to_f16(8 * d);
      if (d == 0) continue;
      store_points(search, f.q, 0, 256, f);
      for (std::size_t u = 0; u < 8; ++u) f.scale[u] = static_cast<std::uint8_t>((search.units()[u].factor - 1) / 2);
    }
    return 0;
  }
};

struct IQ1_M : FieldFormat<256, 56> {
  static constexpr int kReach = 9, kGroup = 16;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int g = 0; g < 32; ++g) {
      io.byte(g, f.index[g]);
      io.bits(32 + g / 2, 4 * (g % 2), 3, f.index[g], 8);
      io.bits(32 + g / 2, 4 * (g % 2) + 3, 1, f.sign[g]);
    }
    for (int i = 0; i < 4; ++i) {  // four scales of three bits, and a quarter of d
      std::uint16_t word = 0;
      if constexpr (Io::kReads) {
        io.half(48 + 2 * i, word);
        for (int t = 0; t < 4; ++t) f.scale[4 * i + t] = static_cast<std::uint8_t>((word >> 3 * t) & 7);
        f.d = static_cast<std::uint16_t>(f.d | (word >> 12) << 4 * i);
      } else {
        unsigned bits = static_cast<unsigned>((f.d >> 4 * i) & 15) << 12;
        for (int t = 0; t < 4; ++t) bits |= static_cast<unsigned>(f.scale[4 * i + t]) << 3 * t;
        word = static_cast<std::uint16_t>(bits);
        io.half(48 + 2 * i, word);
      }
    }
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    shifted_codes(f, 256, code);
    for (int g = 0; g < 16; ++g) {
      scale[g] = f16_to_f32(f.d) * static_cast<float>(2 * f.scale[g] + 1) * kEighth;
      add[g] = 0;
    }
  }
  static float encode(const float* x, const float* importance, std::int64_t k, F* fields) {
    for (std::int64_t b = 0; b < k / 256; ++b) {
      F& f = fields[b];
      const float* xb = x + 256 * b;
      float w[256];
      search_weights(xb, importance != nullptr ? importance + 256 * b : nullptr, 2 * mean_square(xb, 256), 256, w);
      ValueSearch<BookM> search(xb, w, 256, f.q);
      const float d = search.fit({1, 15, 2}, as_eighth_of_half);
      f.d = f32_to_f16(8 * d);
      if (d == 0) continue;
      store_points(search, f.q, 0, 256, f);
      for (std::size_t u = 0; u < 16; ++u) f.scale[u] = static_cast<std::uint8_t>((search.units()[u].factor - 1) / 2);
    }
    return 0;
  }
};

/// Blocks of 32 under one scale per row. T has store(factor, f, unit) and kFactors.
template <class T, int Bytes, class Book>
struct OneBitRows : FieldFormat<32, Bytes> {
  using F = Fields<32>;
  static constexpr int kHeader = 2, kRows = 4, kReach = 9;
  static float encode(const float* x, const float* importance, std::int64_t k, F* fields) {
    const auto n = static_cast<std::size_t>(k);
    std::vector<float> w(n);
    search_weights(x, importance, 2 * mean_square(x, k), static_cast<int>(k), w.data());
    std::vector<std::uint8_t> q(n);
    ValueSearch<Book> search(x, w.data(), k, q.data());
    const float d = search.fit(T::kFactors, as_eighth_of_half);
    if (d == 0) return 0;
    for (std::size_t b = 0; b < n / 32; ++b) {
      store_points(search, q.data() + 32 * b, 32 * b, 32, fields[b]);
      for (std::size_t u = 0; u < 32 / Book::kUnit; ++u) {
        T::store(search.units()[b * (32 / Book::kUnit) + u].factor, fields[b], u);
      }
    }
    return 8 * d;
  }
};

struct IQ1_S_R4 : OneBitRows<IQ1_S_R4, 6, BookS> {
  static constexpr Factors kFactors{1, 15, 2};
  template <class Io>
  static void layout(Io io, int row, F& f) {
    for (int i = 0; i < 4; ++i) io.byte(4 * i + row, f.index[i]);
    IQ1_S::high_bits(io, 16 + 2 * row, 0, f);
  }
  static void values(const F& f, float d, std::int8_t* code, float* scale, float* add) {
    shifted_codes(f, 32, code);
    set_scale(d * static_cast<float>(2 * f.scale[0] + 1) * kEighth, scale, add);
  }
  static void store(int factor, F& f, std::size_t /*unit*/) {
    f.scale[0] = static_cast<std::uint8_t>((factor - 1) / 2);
  }
};

struct IQ1_M_R4 : OneBitRows<IQ1_M_R4, 7, BookM> {
  static constexpr int kGroup = 16;
  static constexpr Factors kFactors{0, 15, 1};
  template <class Io>
  static void layout(Io io, int row, F& f) {
    for (int i = 0; i < 4; ++i) {
      io.byte(4 * i + row, f.index[i]);
      io.bits(16 + 4 * (i / 2) + row, 4 * (i % 2), 3, f.index[i], 8);
      io.bits(16 + 4 * (i / 2) + row, 4 * (i % 2) + 3, 1, f.sign[i]);
    }
    for (int u = 0; u < 2; ++u) io.bits(24 + row, 4 * u, 4, f.scale[u]);
  }
  static void values(const F& f, float d, std::int8_t* code, float* scale, float* add) {
    shifted_codes(f, 32, code);
    for (int u = 0; u < 2; ++u) {
      scale[u] = d * static_cast<float>(f.scale[u]) * kEighth;
      add[u] = 0;
    }
  }
  static void store(int factor, F& f, std::size_t unit) { f.scale[unit] = static_cast<std::uint8_t>(factor); }
};

}  // namespace

const WeightCodec k_codec_iq1_s = FieldCodec<IQ1_S>::kCodec;
const WeightCodec k_codec_iq1_s_r4 = FieldCodec<IQ1_S_R4>::kCodec;
const WeightCodec k_codec_iq1_m = FieldCodec<IQ1_M>::kCodec;
const WeightCodec k_codec_iq1_m_r4 = FieldCodec<IQ1_M_R4>::kCodec;

}  // namespace ggml::quant
