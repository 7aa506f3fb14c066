// The K types with two and three bits, and the interleaved forms of all K types and of the blocks of 32.
#include "quant/field_codec.h"
#include "quant/search.h"

namespace ggml::quant {
namespace {

constexpr int kSub16 = 16;  // groups of 16 in a block

/// value = d * scale_k * code - dmin * min_k, k per 16 (Q2_K) or per 32.
template <int kSub, class F>
void values_with_min(const F& f, std::int8_t* code, float* scale, float* add) {
  const float d = f16_to_f32(f.d), dmin = f16_to_f32(f.dmin);
  for (int e = 0; e < 256; ++e) code[e] = static_cast<std::int8_t>(f.q[e]);
  for (int g = 0; g < kSub16; ++g) {
    scale[g] = d * static_cast<float>(f.scale[g * 16 / kSub]);
    add[g] = -(dmin * static_cast<float>(f.min[g * 16 / kSub]));
  }
}

[[nodiscard]] float mean_square(const float* x, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  return sum / static_cast<float>(n);
}

// ------------------------------------------------------------------------------------------------------------ Q2_K

/// Sixteen non-negative numbers to four bits with one scale, which is returned.
float to_four_bits(const float* values, const float* weights, std::uint8_t* out) {
  if (weights != nullptr) return fit_positive(values, weights, kSub16, 15, out);
  const float most = std::max(0.0f, *std::max_element(values, values + kSub16));
  const float inverse = most > 0 ? 15 / most : 0;
  for (int g = 0; g < kSub16; ++g) out[g] = static_cast<std::uint8_t>(std::clamp(nint(inverse * values[g]), 0, 15));
  return most / 15;
}

struct Q2_K : FieldFormat<256, 84> {
  static constexpr int kReach = 3, kGroup = 16;
  static constexpr bool kHasMin = true;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int g = 0; g < kSub16; ++g) {
      io.bits(g, 0, 4, f.scale[g]);
      io.bits(g, 4, 4, f.min[g]);
    }
    pairs_by_32(io, 16, f);
    io.half(80, f.d);
    io.half(82, f.dmin);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    values_with_min<16>(f, code, scale, add);
  }
  static float encode(const float* x, const float* importance, std::int64_t k, F* fields) {
    for (std::int64_t b = 0; b < k / 256; ++b) {
      encode_block(x + 256 * b, importance != nullptr ? importance + 256 * b : nullptr, fields[b]);
    }
    return 0;
  }
  static void encode_block(const float* x, const float* importance, F& f) {
    float scales[kSub16], mins[kSub16], weights[kSub16] = {};
    const float sigma2 = mean_square(x, 256);
    for (int g = 0; g < kSub16; ++g) {
      const float* xg = x + 16 * g;
      float w[16];
      for (int i = 0; i < 16; ++i) {
        w[i] = importance != nullptr ? importance[16 * g + i] * std::sqrt(sigma2 + xg[i] * xg[i])
                                     : std::fabs(xg[i]) + std::sqrt(sigma2) / 4;
        weights[g] += w[i];
      }
      std::uint8_t codes[16];
      const MinSearch search =
          importance != nullptr ? MinSearch{-0.9f, 0.05f, 36, false} : MinSearch{-0.5f, 0.1f, 15, true};
      const ScaleMin fit = fit_with_min(xg, w, 16, 3, search, codes);
      scales[g] = fit.scale;
      mins[g] = fit.min;
    }
    const float* w = importance != nullptr ? weights : nullptr;
    f.d = f32_to_f16(to_four_bits(scales, w, f.scale));
    f.dmin = f32_to_f16(to_four_bits(mins, w, f.min));
    for (int e = 0; e < 256; ++e) {
      const float scale = f16_to_f32(f.d) * f.scale[e / 16], min = f16_to_f32(f.dmin) * f.min[e / 16];
      f.q[e] = static_cast<std::uint8_t>(std::clamp(nint(scale != 0 ? (x[e] + min) / scale : 0), 0, 3));
    }
  }
};

struct Q2_K_R4 : Q2_K {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    io.half(8 + 2 * row, f.dmin);
    for (int g = 0; g < kSub16; ++g) {
      io.bits(16 + 4 * g + row, 0, 4, f.scale[g]);
      io.bits(16 + 4 * g + row, 4, 4, f.min[g]);
    }
    pairs_r4(io, 80, row, f);
  }
};

// ------------------------------------------------------------------------------------------------------------ Q3_K

struct Q3_K : FieldFormat<256, 110> {
  static constexpr int kReach = 4, kGroup = 16;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    bit_by_32(io, 0, f, 2);
    pairs_by_32(io, 32, f);
    for (int g = 0; g < kSub16; ++g) {
      io.bits(96 + g % 8, 4 * (g / 8), 4, f.scale[g]);
      io.bits(96 + 8 + g % 4, 2 * (g / 4), 2, f.scale[g], 4);
    }
    io.half(108, f.d);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    const float d = f16_to_f32(f.d);
    for (int e = 0; e < 256; ++e) code[e] = static_cast<std::int8_t>(f.q[e] - 4);
    for (int g = 0; g < kSub16; ++g) {
      scale[g] = d * static_cast<float>(f.scale[g] - 32);
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
    float scales[kSub16], weights[kSub16] = {};
    const float sigma2 = 2 * mean_square(x, 256);
    for (int g = 0; g < kSub16; ++g) {
      const float* xg = x + 16 * g;
      float w[16];
      for (int i = 0; i < 16; ++i) {
        w[i] = (importance != nullptr ? importance[16 * g + i] : 1) * std::sqrt(sigma2 + xg[i] * xg[i]);
        weights[g] += w[i];
      }
      scales[g] = fit_either_sign(xg, w, 16, 4, f.q + 16 * g);
    }
    f.d = f32_to_f16(fit_symmetric(scales, weights, kSub16, 32, f.scale));
    for (int e = 0; e < 256; ++e) {
      const float scale = f16_to_f32(f.d) * static_cast<float>(f.scale[e / 16] - 32);
      if (scale != 0) f.q[e] = static_cast<std::uint8_t>(std::clamp(nint(x[e] / scale), -4, 3) + 4);
    }
  }
};

struct Q3_K_R4 : Q3_K {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    for (int g = 0; g < kSub16; ++g) six_bits_r(io, 24, 8, 4 * g + row, f.scale[g]);
    bit_r4(io, 56, row, f, 2);
    pairs_r4(io, 184, row, f);
  }
};

// ----------------------------------------------------------------------------------------- Q4_K, Q5_K, Q6_K in rows

/// The six-bit scales and minima as a row's own block has them.
template <class Io, class F>
void six_bit_scales(Io io, int at, F& f) {
  for (int k = 0; k < 4; ++k) {
    io.bits(at + k, 0, 6, f.scale[k]);
    io.bits(at + k + 4, 0, 6, f.min[k]);
    io.bits(at + k + 8, 0, 4, f.scale[k + 4]);
    io.bits(at + k, 6, 2, f.scale[k + 4], 4);
    io.bits(at + k + 8, 4, 4, f.min[k + 4]);
    io.bits(at + k + 4, 6, 2, f.min[k + 4], 4);
  }
}

/// The same of one row of four.
template <class Io, class F>
void six_bit_scales_r4(Io io, int row, F& f) {
  io.half(2 * row, f.d);
  io.half(8 + 2 * row, f.dmin);
  for (int k = 0; k < 8; ++k) {
    const int n = 4 * k + row, shift = 4 * (n / 16);
    io.bits(32 + n, 0, 4, f.scale[k]);
    io.bits(16 + n % 16, shift, 2, f.scale[k], 4);
    io.bits(32 + n, 4, 4, f.min[k]);
    io.bits(16 + n % 16, shift + 2, 2, f.min[k], 4);
  }
}

struct PlainQ4K : FieldFormat<256, 144> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    io.half(2, f.dmin);
    six_bit_scales(io, 4, f);
    nibbles_by_32(io, 16, f);
  }
};

struct Q4_K_R4 : FieldFormat<256, 144> {
  static constexpr int kRows = 4, kReach = 15;
  static constexpr bool kHasMin = true;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    six_bit_scales_r4(io, row, f);
    nibbles_r4(io, 64, row, f);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    values_with_min<32>(f, code, scale, add);
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    return encode_with<PlainQ4K>(k_codec_q4_k, x, w, k, fields);
  }
};

struct PlainQ5K : FieldFormat<256, 176> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    io.half(2, f.dmin);
    six_bit_scales(io, 4, f);
    bit_by_32(io, 16, f, 4);
    nibbles_by_32(io, 48, f);
  }
};

struct Q5_K_R4 : FieldFormat<256, 176> {
  static constexpr int kRows = 4, kReach = 31;
  static constexpr bool kHasMin = true;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    six_bit_scales_r4(io, row, f);
    nibbles_r4(io, 192, row, f);
    for (int e = 0; e < 256; ++e) {
      io.bits(64 + 16 * (e / 32) + 4 * row + e % 4, 4 * (e % 32 / 16) + 2 * (e / 4 % 2) + e / 8 % 2, 1, f.q[e], 4);
    }
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    values_with_min<32>(f, code, scale, add);
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    return encode_with<PlainQ5K>(k_codec_q5_k, x, w, k, fields);
  }
};

struct PlainQ6K : FieldFormat<256, 210> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int e = 0; e < 256; ++e) {
      const int n = e / 128, g = e % 128 / 32, l = e % 32;
      io.bits(64 * n + 32 * (g % 2) + l, 4 * (g / 2), 4, f.q[e]);
      io.bits(128 + 32 * n + l, 2 * g, 2, f.q[e], 4);
    }
    for (int g = 0; g < kSub16; ++g) io.byte(192 + g, f.scale[g]);
    io.half(208, f.d);
  }
};

struct Q6_K_R4 : FieldFormat<256, 210> {
  static constexpr int kRows = 4, kReach = 32, kGroup = 16;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    for (int g = 0; g < kSub16; ++g) io.byte(8 + 4 * g + row, f.scale[g]);
    nibbles_r4(io, 328, row, f);
    for (int e = 0; e < 256; ++e) {
      const int byte = 32 * (e / 32) + 16 * (e % 32 / 16) + 4 * row + e % 4;
      io.bits(72 + byte, 2 * (e / 8 % 2) + 4 * (e / 4 % 2), 2, f.q[e], 4);
    }
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    const float d = f16_to_f32(f.d);
    for (int e = 0; e < 256; ++e) code[e] = static_cast<std::int8_t>(f.q[e] - 32);
    for (int g = 0; g < kSub16; ++g) {
      scale[g] = d * static_cast<float>(static_cast<std::int8_t>(f.scale[g]));
      add[g] = 0;
    }
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    return encode_with<PlainQ6K>(k_codec_q6_k, x, w, k, fields);
  }
};

// ---------------------------------------------------------------------------------------------- eight bits, 256 wide

/// Rows of the activation form of 256 with the scale as half; eight or sixteen of them together.
template <int Rows, int Offset>
struct Q8K : FieldFormat<256, 258> {
  static constexpr int kRows = Rows;
  static constexpr bool kPlusZero = Offset != 0;  // the reference adds -128 d: a zero is never negative
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    for (int e = 0; e < 256; ++e) io.byte(2 * Rows + 4 * Rows * (e / 4) + 4 * row + e % 4, f.q[e]);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 256; ++e) code[e] = static_cast<std::int8_t>(f.q[e] - Offset);
    for (int g = 0; g < 8; ++g) set_scale(f16_to_f32(f.d), scale + 2 * g, add + 2 * g);
  }
  static float encode(const float* x, const float* /*importance*/, std::int64_t k, F* fields) {
    for (std::int64_t b = 0; b < k / 256; ++b) {
      const float* xb = x + 256 * b;
      const float most = std::fabs(signed_max(xb, 256)), inverse = most != 0 ? 127 / most : 0;
      fields[b].d = f32_to_f16(most / 127);
      for (int e = 0; e < 256; ++e) {
        fields[b].q[e] = static_cast<std::uint8_t>(std::clamp(nint(xb[e] * inverse), -127, 127) + Offset);
      }
    }
    return 0;
  }
};

// ------------------------------------------------------------------------------------------- interleaved blocks of 32

struct PlainQ40 : FieldFormat<32, 18> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    nibbles_by_16(io, 2, f, 32);
  }
};

struct Q4_0_R8 : FieldFormat<32, 18> {
  static constexpr int kRows = 8, kReach = 8;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    nibbles_r8(io, 16, row, f);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 32; ++e) code[e] = static_cast<std::int8_t>(f.q[e] - 8);
    set_scale(f16_to_f32(f.d), scale, add);
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    return encode_with<PlainQ40>(k_codec_q4_0, x, w, k, fields);
  }
};

struct PlainQ50 : FieldFormat<32, 22> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int e = 0; e < 32; ++e) io.bits(2 + e / 8, e % 8, 1, f.q[e], 4);
    nibbles_by_16(io, 6, f, 32);
  }
};

struct Q5_0_R4 : FieldFormat<32, 22> {
  static constexpr int kRows = 4, kReach = 16;
  static constexpr bool kPlusZero = true;  // the reference adds -16 d: a zero is never negative
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    nibbles_r4(io, 24, row, f, 32);
    for (int e = 0; e < 32; ++e) {
      io.bits(8 + 4 * row + e % 4, e / 16 + 2 * (e / 4 % 2) + 4 * (e / 8 % 2), 1, f.q[e], 4);
    }
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 32; ++e) code[e] = static_cast<std::int8_t>(f.q[e] - 16);
    set_scale(f16_to_f32(f.d), scale, add);
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    return encode_with<PlainQ50>(k_codec_q5_0, x, w, k, fields);
  }
};

struct PlainQ80 : FieldFormat<32, 34> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int e = 0; e < 32; ++e) io.byte(2 + e, f.q[e]);
  }
};

struct Q8_0_R8 : FieldFormat<32, 34> {
  static constexpr int kRows = 8;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    for (int e = 0; e < 32; ++e) io.byte(16 + 128 * (e / 16) + 32 * (e % 16 / 4) + 4 * row + e % 4, f.q[e]);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 32; ++e) code[e] = static_cast<std::int8_t>(f.q[e]);
    set_scale(f16_to_f32(f.d), scale, add);
  }
  static float encode(const float* x, const float* w, std::int64_t k, F* fields) {
    return encode_with<PlainQ80>(k_codec_q8_0, x, w, k, fields);
  }
};

}  // namespace

const WeightCodec k_codec_q2_k = FieldCodec<Q2_K>::kCodec;
const WeightCodec k_codec_q2_k_r4 = FieldCodec<Q2_K_R4, Q2_K>::kCodec;
const WeightCodec k_codec_q3_k = FieldCodec<Q3_K>::kCodec;
const WeightCodec k_codec_q3_k_r4 = FieldCodec<Q3_K_R4, Q3_K>::kCodec;
const WeightCodec k_codec_q4_k_r4 = FieldCodec<Q4_K_R4, PlainQ4K>::kCodec;
const WeightCodec k_codec_q5_k_r4 = FieldCodec<Q5_K_R4, PlainQ5K>::kCodec;
const WeightCodec k_codec_q6_k_r4 = FieldCodec<Q6_K_R4, PlainQ6K>::kCodec;
const WeightCodec k_codec_q8_k_r8 = FieldCodec<Q8K<8, 0>>::kCodec;
const WeightCodec k_codec_q8_k_r16 = FieldCodec<Q8K<16, 128>>::kCodec;
const WeightCodec k_codec_q4_0_r8 = FieldCodec<Q4_0_R8, PlainQ40>::kCodec;
const WeightCodec k_codec_q5_0_r4 = FieldCodec<Q5_0_R4, PlainQ50>::kCodec;
const WeightCodec k_codec_q8_0_r8 = FieldCodec<Q8_0_R8, PlainQ80>::kCodec;

}  // namespace ggml::quant
