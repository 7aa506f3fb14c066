// The trellis types: a group of 8 (IQ4_KT: 4) weights is the start of a pseudo-random sequence that an index seeds.
#include <array>
#include <numeric>

#include "quant/field_codec.h"
#include "quant/grids.h"
#include "quant/value_search.h"
#include "quant/value_weights.h"

namespace ggml::quant {
namespace {

constexpr std::uint32_t kFirstSeed = 4096;

/// The next value of a sequence, in [-126, 126].
[[nodiscard]] int next_value(std::uint32_t& x) {
  constexpr std::uint32_t kMultiplier = 0xCBAC1FED, kMask = 0x3f3f3f3f;
  constexpr int kBias = 126;
  x *= kMultiplier;
  const std::uint32_t bytes = x & kMask;
  return static_cast<int>((bytes & 255) + ((bytes >> 8) & 255) + ((bytes >> 16) & 255) + (bytes >> 24)) - kBias;
}

void sequence(std::uint32_t index, int n, std::int8_t* out) {
  std::uint32_t x = index + kFirstSeed;
  for (int i = 0; i < n; ++i) out[i] = static_cast<std::int8_t>(next_value(x));
}

/// All groups of values of a type, sorted into cells of space, so that only the cells about a point are searched.
/// A coordinate is cut at `kCuts`; a cell number has kCellBits bits per coordinate.
template <int Width, int CellBits, bool Absolute>
class Cells {
 public:
  Cells(std::uint32_t first, std::uint32_t count) : start_((1u << (Width * CellBits)) + 1) {
    std::vector<std::array<std::int8_t, Width>> groups(count);
    std::vector<std::uint32_t> cell(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      sequence(first + i, Width, groups[i].data());
      for (int j = 0; j < Width; ++j) {
        auto& v = groups[i][static_cast<std::size_t>(j)];
        if (Absolute) v = static_cast<std::int8_t>(std::abs(v));
        cell[i] |= part_of(v) << CellBits * j;
      }
      ++start_[cell[i] + 1];
    }
    std::partial_sum(start_.begin(), start_.end(), start_.begin());
    std::vector<std::uint32_t> fill(start_.begin(), start_.end() - 1);
    index_.resize(count);
    values_.resize((std::size_t{count} + kLanes) * Width);  // the last lanes may look past the end
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t at = fill[cell[i]]++;
      index_[at] = static_cast<std::uint16_t>(i);
      for (int j = 0; j < Width; ++j) {
        values_[static_cast<std::size_t>(j) * (count + kLanes) + at] = groups[i][static_cast<std::size_t>(j)];
      }
    }
  }

  /// Index of the group nearest to x in the metric of w.
  [[nodiscard]] std::uint16_t nearest(const float* x, const float* w) const {
    // No group of a cell is closer than the cell itself, which is as far away as its parts in all coordinates.
    std::array<float, kCells> away{};
    std::uint32_t own = 0, cells = 1;
    for (int j = 0; j < Width; ++j) {
      const std::uint32_t part = part_of(x[j]);
      own |= part << CellBits * j;
      for (std::uint32_t p = kParts; p-- > 0;) {
        const float outside = p == part ? 0 : p < part ? x[j] - kCuts[p] : kCuts[p - 1] - x[j];
        for (std::uint32_t c = 0; c < cells; ++c) away[c + p * cells] = away[c] + w[j] * outside * outside;
      }
      cells *= kParts;
    }
    float least = std::numeric_limits<float>::max();
    std::uint16_t best = 0;
    search(own, x, w, least, best);
    for (const float share : {0.25f, 1.0f}) {  // near cells first: what they have to offer rules out most of the others
      const float limit = least * share;
      for (std::uint32_t c = 0; c < kCells; ++c) {
        if (c != own && away[c] < limit && away[c] < least) search(c, x, w, least, best);
      }
    }
    return best;
  }

 private:
  static constexpr std::uint32_t kParts = 1u << CellBits;
  static constexpr std::uint32_t kLanes = 16;  // groups that are compared at once
  static constexpr std::uint32_t kCells = 1u << (Width * CellBits);
  // A cell's share of the groups is about the same: half of the magnitudes are below 25.
  static constexpr float kCuts[3] = {CellBits == 2 ? -25.0f : Absolute ? 24.5f : 0.0f, 0.0f, 25.0f};

  template <class T>
  [[nodiscard]] static std::uint32_t part_of(T v) {
    std::uint32_t part = 0;
    while (part < kParts - 1 && static_cast<float>(v) > kCuts[part]) ++part;
    return part;
  }

  void search(std::uint32_t cell, const float* x, const float* w, float& least, std::uint16_t& best) const {
    const std::size_t stride = values_.size() / Width;
    for (std::uint32_t at = start_[cell]; at < start_[cell + 1]; at += kLanes) {
      float error[kLanes] = {};
      for (std::size_t j = 0; j < Width; ++j) {
        const float* v = values_.data() + j * stride + at;
        for (std::uint32_t i = 0; i < kLanes; ++i) error[i] += w[j] * ((x[j] - v[i]) * (x[j] - v[i]));
      }
      float smallest = error[0];
      for (std::uint32_t i = 1; i < kLanes; ++i) smallest = std::min(smallest, error[i]);
      if (!(smallest < least)) continue;
      for (std::uint32_t i = 0; i < kLanes && at + i < start_[cell + 1]; ++i) {
        if (!(error[i] < least)) continue;
        least = error[i];
        best = index_[at + i];
      }
    }
  }

  std::vector<std::uint32_t> start_;
  std::vector<std::uint16_t> index_;
  std::vector<float> values_;  // coordinate by coordinate
};

/// The index of a group lies in the first two of its codes. `kFirst(set)`: what is added to it.
template <int Width, std::uint32_t Count, bool Absolute, int Sets>
struct TrellisBook {
  static constexpr int kUnit = 32, kSets = Sets;
  static constexpr bool kPositive = true, kEitherSign = true, kFewTrials = Width == 8;
  static int least(int /*set*/) { return 100; }
  static int most(int /*set*/) { return 100; }
  /// Sequences have a root mean square of 37: the largest of 32 values is about 100.
  static float share(float t) { return Width == 8 ? 1.0f + 0.35f * t : 1.1f + 0.6f * t; }
  static std::uint32_t index(const std::uint8_t* q) { return q[0] | static_cast<std::uint32_t>(q[1]) << 8; }
  static int value(const std::uint8_t* q, int i, int set) {
    const std::uint8_t* group = q + i / Width * Width;
    std::uint32_t x = index(group) + static_cast<std::uint32_t>(set) * Count + kFirstSeed;
    int v = 0;
    for (int j = 0; j <= i % Width; ++j) v = next_value(x);
    return Absolute ? std::abs(v) : v;
  }
  static const auto& cells(int set) {
    constexpr int kBits = Width == 8 ? 1 : 2;
    static const std::array<Cells<Width, kBits, Absolute>, Sets> all = make(std::make_index_sequence<Sets>());
    return all[static_cast<std::size_t>(set)];
  }
  template <std::size_t... I>
  static auto make(std::index_sequence<I...> /*sets*/) {
    constexpr int kBits = Width == 8 ? 1 : 2;
    return std::array<Cells<Width, kBits, Absolute>, Sets>{
        Cells<Width, kBits, Absolute>(static_cast<std::uint32_t>(I) * Count, Count)...};
  }
  static void assign(const float* x, const float* w, float inverse, int set, std::uint8_t* q) {
    for (int g = 0; g < kUnit; g += Width) {
      float v[Width];
      for (int j = 0; j < Width; ++j) v[j] = inverse * x[g + j];
      const std::uint16_t index = cells(set).nearest(v, w + g);
      q[g] = static_cast<std::uint8_t>(index);
      q[g + 1] = static_cast<std::uint8_t>(index >> 8);
      std::fill(q + g + 2, q + g + Width, std::uint8_t{0});
    }
  }
};

/// What the types share. T has Book, kFactors and store(code, f, unit).
template <class T, int Bytes, int Width>
struct Trellis : FieldFormat<256, Bytes> {
  using F = Fields<256>;
  static constexpr int kHeader = 4;
  static float encode(const float* x, const float* importance, std::int64_t k, F* fields) {
    using Book = typename T::Book;
    const auto n = static_cast<std::size_t>(k);
    std::vector<float> w(n), magnitude(x, x + k);
    for (std::int64_t b = 0; b < k; b += 256) {
      search_weights(x + b, importance != nullptr ? importance + b : nullptr,
                     (Width == 8 ? 2 : 16) * mean_square(x + b, 256), 256, w.data() + b);
    }
    if (T::kAbsolute) {
      for (std::size_t i = 0; i < n; ++i) {
        auto& sign = fields[i / 256].sign[i % 256 / 8];
        sign = static_cast<std::uint8_t>(sign | (x[i] < 0) << i % 8);
        magnitude[i] = std::fabs(x[i]);
      }
    }
    std::vector<std::uint8_t> q(n);
    ValueSearch<Book> search(magnitude.data(), w.data(), k, q.data());
    const float d = search.fit(T::kFactors, [](float v) { return v; });
    for (std::size_t i = 0; i < n; i += Width) {
      fields[i / 256].index[i % 256 / Width] = static_cast<std::uint16_t>(Book::index(q.data() + i));
    }
    for (std::size_t u = 0; u < search.units().size(); ++u) T::store(search.units()[u], fields[u / 8], u % 8);
    return d;
  }
  /// Codes of a block; `first[b]`: what is added to the indices of the 32 weights.
  static void sequences(const F& f, const std::uint32_t (&first)[8], std::int8_t* code) {
    for (int e = 0; e < 256; e += Width) sequence(f.index[e / Width] + first[e / 32], Width, code + e);
  }
};

/// Half of the nibbles first: nibble b / 4 of byte b % 4.
template <class Io, class F>
void scale_halves(Io io, int at, F& f) {
  for (int b = 0; b < 8; ++b) io.bits(at + b % 4, 4 * (b / 4), 4, f.scale[b]);
}

constexpr Factors kTableFactors = factors_of(kValues4, 16);

struct IQ1_KT : Trellis<IQ1_KT, 56, 8> {
  using Book = TrellisBook<8, 8192, false, 1>;
  static constexpr bool kAbsolute = false;
  static constexpr Factors kFactors = kTableFactors;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int b = 0; b < 8; ++b) {
      io.bits(b, 0, 4, f.scale[b]);
      for (int i = 0; i < 4; ++i) {
        io.byte(8 + 4 * b + i, f.index[4 * b + i]);
        io.bits(40 + 4 * (b % 4) + i, 4 * (b / 4), 4, f.index[4 * b + i], 8);
        io.bits(b, 4 + i, 1, f.index[4 * b + i], 12);
      }
    }
  }
  static void values(const F& f, float d, std::int8_t* code, float* scale, float* add) {
    sequences(f, {}, code);
    for (int b = 0; b < 8; ++b) {
      set_scale(d * static_cast<float>(kValues4[f.scale[b]]), scale + 2 * b, add + 2 * b);
    }
  }
  static void store(const UnitCode& code, F& f, std::size_t b) { f.scale[b] = static_cast<std::uint8_t>(code.index); }
};

struct IQ2_KT : Trellis<IQ2_KT, 68, 8> {
  using Book = TrellisBook<8, 65536, false, 1>;
  static constexpr bool kAbsolute = false;
  static constexpr Factors kFactors = kTableFactors;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    scale_halves(io, 0, f);
    for (int g = 0; g < 32; ++g) io.half(4 + 2 * g, f.index[g]);
  }
  static void values(const F& f, float d, std::int8_t* code, float* scale, float* add) {
    sequences(f, {}, code);
    for (int b = 0; b < 8; ++b) {
      set_scale(d * static_cast<float>(kValues4[f.scale[b]]), scale + 2 * b, add + 2 * b);
    }
  }
  static void store(const UnitCode& code, F& f, std::size_t b) { f.scale[b] = static_cast<std::uint8_t>(code.index); }
};

struct IQ3_KT : Trellis<IQ3_KT, 100, 8> {
  using Book = TrellisBook<8, 65536, true, 1>;
  static constexpr bool kAbsolute = true;
  static constexpr Factors kFactors{0, 15, 1};
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    scale_halves(io, 0, f);
    for (int g = 0; g < 32; ++g) io.half(4 + 2 * g, f.index[g]);
    for (int e = 0; e < 256; ++e) io.bits(68 + e % 32, e / 32, 1, f.sign[e / 8], e % 8);
  }
  static void values(const F& f, float d, std::int8_t* code, float* scale, float* add) {
    sequences(f, {}, code);
    for (int e = 0; e < 256; ++e) {
      const int v = std::abs(code[e]);
      code[e] = static_cast<std::int8_t>(((f.sign[e / 8] >> e % 8) & 1) != 0 ? -v : v);
    }
    for (int b = 0; b < 8; ++b) set_scale(d * static_cast<float>(f.scale[b]), scale + 2 * b, add + 2 * b);
  }
  static void store(const UnitCode& code, F& f, std::size_t b) { f.scale[b] = static_cast<std::uint8_t>(code.index); }
};

/// As the codec, but a zero keeps its sign, as the reference's products of floats have it.
void dequantise_absolute(const std::byte* group, int /*row*/, std::int64_t k, float* dst) noexcept {
  const float d = FieldCodec<IQ3_KT>::row_scale(group, 0);
  for (std::int64_t b = 0; b < k / 256; ++b) {
    IQ3_KT::F f;
    IQ3_KT::layout(FieldReader(FieldCodec<IQ3_KT>::block_at(group, b)), 0, f);
    std::int8_t code[256];
    IQ3_KT::sequences(f, {}, code);
    for (int e = 0; e < 256; ++e) {
      const float v = d * static_cast<float>(f.scale[e / 32]) * static_cast<float>(std::abs(code[e]));
      dst[256 * b + e] = ((f.sign[e / 8] >> e % 8) & 1) != 0 ? -v : v;
    }
  }
}
constexpr WeightCodec absolute_codec() {
  WeightCodec codec = FieldCodec<IQ3_KT>::kCodec;
  codec.dequantise = dequantise_absolute;
  return codec;
}
constexpr WeightCodec kAbsoluteCodec = absolute_codec();

struct IQ4_KT : Trellis<IQ4_KT, 128, 4> {
  using Book = TrellisBook<4, 32768, false, 2>;
  static constexpr bool kAbsolute = false;
  static constexpr Factors kFactors{-64, 63, 1};
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int b = 0; b < 8; ++b) {
      std::uint32_t word = 0;
      if constexpr (Io::kReads) {
        io.word(4 * b, word);
        f.set[b] = word & 1;
        f.scale[b] = static_cast<std::uint8_t>((word & 255) >> 1);
        for (int i = 0; i < 8; ++i) f.index[8 * b + i] = static_cast<std::uint16_t>(((word >> (8 + 3 * i)) & 7) << 12);
      } else {
        word = f.set[b] | static_cast<std::uint32_t>(f.scale[b]) << 1;
        for (int i = 0; i < 8; ++i) word |= static_cast<std::uint32_t>(f.index[8 * b + i] >> 12) << (8 + 3 * i);
        io.word(4 * b, word);
      }
    }
    for (int j = 0; j < 64; ++j) {
      io.byte(32 + j, f.index[j]);
      io.bits(96 + j % 32, 4 * (j / 32), 4, f.index[j], 8);
    }
  }
  static void values(const F& f, float d, std::int8_t* code, float* scale, float* add) {
    std::uint32_t first[8];
    for (int b = 0; b < 8; ++b) first[b] = f.set[b] * 32768u;
    sequences(f, first, code);
    for (int b = 0; b < 8; ++b) set_scale(d * static_cast<float>(f.scale[b] - 64), scale + 2 * b, add + 2 * b);
  }
  static void store(const UnitCode& code, F& f, std::size_t b) {
    f.scale[b] = static_cast<std::uint8_t>(code.index);
    f.set[b] = static_cast<std::uint8_t>(code.set);
  }
};

}  // namespace

const WeightCodec k_codec_iq1_kt = FieldCodec<IQ1_KT>::kCodec;
const WeightCodec k_codec_iq2_kt = FieldCodec<IQ2_KT>::kCodec;
const WeightCodec k_codec_iq3_kt = kAbsoluteCodec;
const WeightCodec k_codec_iq4_kt = FieldCodec<IQ4_KT>::kCodec;

}  // namespace ggml::quant
