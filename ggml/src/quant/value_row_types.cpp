// Types with tables of values and one scale per row: IQ2_KS IQ2_KL IQ3_KS IQ4_KS IQ4_KSS IQ5_KS, and their interleaved
// forms.
#include <bit>

#include "quant/field_codec.h"
#include "quant/grids.h"
#include "quant/rounding.h"
#include "quant/value_search.h"
#include "quant/value_weights.h"

namespace ggml::quant {
namespace {

/// What the types share; T has store(factor, set, f, unit), factor(f, unit) and table(f, unit).
template <class T, int Bytes, int Header, class B>
struct RowValues : FieldFormat<256, Bytes> {
  using F = Fields<256>;
  using Book = B;
  static constexpr int kHeader = Header;
  static void values(const F& f, float d, std::int8_t* code, float* scale, float* add) {
    for (int u = 0; u < 8; ++u) {
      const int set = T::table(f, u);
      for (int i = 0; i < 32; ++i) code[32 * u + i] = static_cast<std::int8_t>(Book::value(f.q + 32 * u, i, set));
      set_scale(d * static_cast<float>(T::factor(f, u)), scale + 2 * u, add + 2 * u);
    }
  }
  static float encode(const float* x, const float* importance, std::int64_t k, F* fields) {
    const auto n = static_cast<std::size_t>(k);
    std::vector<float> w(n);
    for (std::int64_t b = 0; b < k; b += 256) {
      search_weights(x + b, importance != nullptr ? importance + b : nullptr, 2 * mean_square(x + b, 256), 256,
                     w.data() + b);
    }
    std::vector<std::uint8_t> q(n);
    ValueSearch<Book> search(x, w.data(), k, q.data());
    const float d = search.fit(
        T::kFactors, Header == 2 ? as_half : [](float v) { return v; });
    for (std::size_t i = 0; i < n; ++i) fields[i / 256].q[i % 256] = q[i];
    for (std::size_t u = 0; u < search.units().size(); ++u) {
      const UnitCode& unit = search.units()[u];
      T::store(d != 0 ? unit.factor : T::kFactors.most, unit.set, fields[u / 8], static_cast<int>(u % 8));
    }
    return d;
  }
};

/// A factor of five bits around 16 in scale[], the table in set[].
template <class T, int Bytes, class B>
struct FiveBitFactor : RowValues<T, Bytes, 2, B> {
  using F = Fields<256>;
  static constexpr Factors kFactors{-16, 15, 1};
  static int factor(const F& f, int unit) { return f.scale[unit] - 16; }
  static int table(const F& f, int unit) { return f.set[unit]; }
  static void store(int factor, int set, F& f, int unit) {
    f.scale[unit] = static_cast<std::uint8_t>(factor + 16);
    f.set[unit] = static_cast<std::uint8_t>(set);
  }
};

struct IQ2_KS : FiveBitFactor<IQ2_KS, 70, ScalarBook<kValues2, 4, 2, 32>> {
  static constexpr int kReach = 31;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int k = 0; k < 8; ++k) {
      io.bits(0, k, 1, f.set[k]);
      io.bits(2 + k / 2, 4 * (k % 2), 4, f.scale[k]);
      io.bits(1, k, 1, f.scale[k], 4);
    }
    pairs_by_32(io, 6, f);
  }
};

struct IQ3_KS : FiveBitFactor<IQ3_KS, 102, ScalarBook<kValues3, 8, 2, 32>> {
  static constexpr int kReach = 64;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int k = 0; k < 8; ++k) {
      io.bits(1, k, 1, f.set[k]);
      io.bits(2 + k % 4, 4 * (k / 4), 4, f.scale[k]);
      io.bits(0, k, 1, f.scale[k], 4);
    }
    pairs_by_32(io, 6, f);
    bit_by_32(io, 70, f, 2);
  }
};

/// An odd factor and the table in one byte.
template <class T, int Bytes, class B>
struct ByteFactor : RowValues<T, Bytes, 4, B> {
  using F = Fields<256>;
  static constexpr Factors kFactors{-127, 127, 2};
  static int factor(const F& f, int unit) { return (f.scale[unit] & 254) - 127; }
  static int table(const F& f, int unit) { return f.scale[unit] & 1; }
  static void store(int factor, int set, F& f, int unit) {
    f.scale[unit] = static_cast<std::uint8_t>((factor + 127) | set);
  }
};

struct IQ4_KS : ByteFactor<IQ4_KS, 136, ScalarBook<kValues4, 16, 2, 32>> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int k = 0; k < 8; ++k) io.byte(k, f.scale[k]);
    nibbles_by_16(io, 8, f);
  }
};

struct IQ4_KS_R4 : IQ4_KS {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    for (int k = 0; k < 8; ++k) io.byte(4 * k + row, f.scale[k]);
    nibbles_r4(io, 32, row, f);
  }
};

struct IQ5_KS : ByteFactor<IQ5_KS, 168, ScalarBook<kValues5, 32, 2, 32>> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int k = 0; k < 8; ++k) io.byte(k, f.scale[k]);
    nibbles_by_32(io, 8, f);
    bit_by_32(io, 136, f, 4);
  }
};

struct IQ5_KS_R4 : IQ5_KS {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    for (int k = 0; k < 8; ++k) io.byte(4 * k + row, f.scale[k]);
    nibbles_r4(io, 32, row, f);
    for (int e = 0; e < 256; ++e) {
      io.bits(544 + 16 * (e / 32) + 4 * row + e % 4, 4 * (e / 4 % 2) + 2 * (e % 32 / 16) + e / 8 % 2, 1, f.q[e], 4);
    }
  }
};

/// Four codes share 15 bits, so the number of set bits in them is even: the cheapest code gives way where it is not.
struct EvenBook : ScalarBook<kValues4, 16, 2, 32> {
  using Plain = ScalarBook<kValues4, 16, 2, 32>;
  static void assign(const float* x, const float* w, float inverse, int set, std::uint8_t* q) {
    Plain::assign(x, w, inverse, set, q);
    for (int j = 0; j < 8; ++j) {
      const int members[4] = {2 * j, 2 * j + 1, 16 + 2 * j, 17 + 2 * j};
      unsigned parity = 0;
      for (const int i : members) parity ^= static_cast<unsigned>(std::popcount(q[i]));
      if (parity % 2 != 0) make_even(members, x, w, inverse, set, q);
    }
  }
  static void make_even(const int (&members)[4], const float* x, const float* w, float inverse, int set,
                        std::uint8_t* q) {
    float least = -1;
    int which = 0;
    std::uint8_t code = 0;
    for (const int i : members) {
      const float v = inverse * x[i], now = v - static_cast<float>(kValues4[16 * set + q[i]]);
      for (int other = std::max(0, q[i] - 3); other <= std::min(15, q[i] + 3); ++other) {
        if (std::popcount(static_cast<unsigned>(other ^ q[i])) % 2 == 0) continue;
        const float then = v - static_cast<float>(kValues4[16 * set + other]);
        const float cost = w[i] * (then * then - now * now);
        if (least >= 0 && !(cost < least)) continue;
        least = std::max(cost, 0.0f);
        which = i;
        code = static_cast<std::uint8_t>(other);
      }
    }
    q[which] = code;
  }
};

struct IQ4_KSS : ByteFactor<IQ4_KSS, 128, EvenBook> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int k = 0; k < 8; ++k) {
      for (int j = 0; j < 8; ++j) {
        const int members[4] = {2 * j, 16 + 2 * j, 2 * j + 1, 17 + 2 * j};
        std::uint16_t word = 0;
        if constexpr (Io::kReads) {
          io.half(16 * k + 2 * j, word);
          f.scale[k] = static_cast<std::uint8_t>(f.scale[k] | (word & 1) << j);
          const unsigned codes = (word & 0xfffeu) ^ ((word & 0xfffeu) >> 1);
          for (int i = 0; i < 4; ++i) f.q[32 * k + members[i]] = static_cast<std::uint8_t>((codes >> 4 * i) & 15);
        } else {
          unsigned codes = 0;
          for (int i = 0; i < 4; ++i) codes |= static_cast<unsigned>(f.q[32 * k + members[i]] & 15) << 4 * i;
          for (const int shift : {1, 2, 4, 8}) codes ^= codes >> shift;  // undoes x ^ x >> 1
          word = static_cast<std::uint16_t>((codes & 0xfffe) | ((f.scale[k] >> j) & 1));
          io.half(16 * k + 2 * j, word);
        }
      }
    }
  }
};

/// A code stands for two neighbouring values; it is kept at the even place.
struct PairBook {
  static constexpr int kUnit = 32, kSets = 1, kCount = 32;
  static constexpr float kSpread = 0.3f;
  static int least(int /*set*/) { return -63; }
  static int most(int /*set*/) { return 47; }
  static int value(const std::uint8_t* q, int i, int /*set*/) { return kPairs[2 * q[i & ~1] + (i & 1)]; }
  static void assign(const float* x, const float* w, float inverse, int /*set*/, std::uint8_t* q) {
    for (int i = 0; i < kUnit; i += 2) {
      float least = -1;
      for (int p = 0; p < kCount; ++p) {
        const float a = inverse * x[i] - kPairs[2 * p], b = inverse * x[i + 1] - kPairs[2 * p + 1];
        const float error = w[i] * a * a + w[i + 1] * b * b;
        if (least >= 0 && !(error < least)) continue;
        least = error;
        q[i] = static_cast<std::uint8_t>(p);
      }
      q[i + 1] = 0;
    }
  }
};

struct IQ2_KL : RowValues<IQ2_KL, 86, 2, PairBook> {
  static constexpr int kReach = 64;
  static constexpr Factors kFactors{-32, 31, 1};
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int k = 0; k < 8; ++k) {
      io.bits(2 + k % 4, 4 * (k / 4), 4, f.scale[k]);
      io.bits(k / 4, 2 * (k % 4), 2, f.scale[k], 4);
      for (int p = 0; p < 16; ++p) {
        io.bits(6 + 16 * (k / 2) + p, 4 * (k % 2), 4, f.q[32 * k + 2 * p]);
        io.bits(70 + p, k, 1, f.q[32 * k + 2 * p], 4);
      }
    }
  }
  static int factor(const F& f, int unit) { return f.scale[unit] - 32; }
  static int table(const F& /*f*/, int /*unit*/) { return 0; }
  static void store(int factor, int /*set*/, F& f, int unit) { f.scale[unit] = static_cast<std::uint8_t>(factor + 32); }
};

}  // namespace

const WeightCodec k_codec_iq2_ks = FieldCodec<IQ2_KS>::kCodec;
const WeightCodec k_codec_iq2_kl = FieldCodec<IQ2_KL>::kCodec;
const WeightCodec k_codec_iq3_ks = FieldCodec<IQ3_KS>::kCodec;
const WeightCodec k_codec_iq4_ks = FieldCodec<IQ4_KS>::kCodec;
const WeightCodec k_codec_iq4_ks_r4 = FieldCodec<IQ4_KS_R4, IQ4_KS>::kCodec;
const WeightCodec k_codec_iq4_kss = FieldCodec<IQ4_KSS>::kCodec;
const WeightCodec k_codec_iq5_ks = FieldCodec<IQ5_KS>::kCodec;
const WeightCodec k_codec_iq5_ks_r4 = FieldCodec<IQ5_KS_R4, IQ5_KS>::kCodec;

}  // namespace ggml::quant
