// Types whose encoding is a formula or a short search: Q6_0 Q8_KV MXFP4 NVFP4, the one- and two-bit and ternary types,
// and the interleaved forms of those.
#include <bit>

#include "quant/field_codec.h"
#include "quant/grids.h"
#include "quant/rounding.h"
#include "quant/search.h"

namespace ggml::quant {
namespace {

/// Rounding with ties away from zero.
[[nodiscard]] int round_away(float v) {
  return std::fabs(v) < 1e9f ? static_cast<int>(std::lround(v)) : 0;
}
[[nodiscard]] float largest(const float* x, std::int64_t n) {
  float most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

// ----------------------------------------------------------------------------------------------- six and eight bits

struct Q6_0 : FieldFormat<32, 26> {
  static constexpr int kReach = 32;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    nibbles_by_16(io, 10, f, 32);
    for (int e = 0; e < 32; ++e) io.bits(2 + e % 8, 4 * (e % 16 / 8) + 2 * (e / 16), 2, f.q[e], 4);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 32; ++e) code[e] = static_cast<std::int8_t>(f.q[e] - 32);
    set_scale(f16_to_f32(f.d), scale, add);
  }
  static float encode(const float* x, const float* importance, std::int64_t k, F* fields) {
    for (std::int64_t b = 0; b < k / 32; ++b) {
      const float* xb = x + 32 * b;
      float w[32];
      for (int i = 0; i < 32; ++i) w[i] = importance != nullptr ? importance[32 * b + i] : xb[i] * xb[i];
      fields[b].d = f32_to_f16(fit_either_sign(xb, w, 32, 32, fields[b].q));
    }
    return 0;
  }
};

struct Q6_0_R4 : Q6_0 {
  static constexpr int kRows = 4;
  static constexpr bool kPlusZero = true;  // the reference adds -32 d: a zero is never negative
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.half(2 * row, f.d);
    nibbles_r4(io, 40, row, f, 32);
    for (int e = 0; e < 32; ++e) {
      io.bits(8 + 16 * (e / 16) + 4 * row + e % 4, 2 * (e / 4 % 2) + 4 * (e / 8 % 2), 2, f.q[e], 4);
    }
  }
};

struct Q8_KV : FieldFormat<32, 32> {
  static constexpr int kHeader = 8;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int e = 0; e < 32; ++e) io.byte(e, f.q[e]);
  }
  static void values(const F& f, float d, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 32; ++e) code[e] = static_cast<std::int8_t>(f.q[e]);
    set_scale(d, scale, add);
  }
  static float encode(const float* x, const float* /*importance*/, std::int64_t k, F* fields) {
    const float d = largest(x, k) / 127, id = inverse(d);
    for (std::int64_t i = 0; i < k; ++i) {
      fields[i / 32].q[i % 32] = static_cast<std::uint8_t>(std::clamp(nint(x[i] * id), -127, 127));
    }
    return d;
  }
};

struct Q8_KV_R8 : Q8_KV {
  static constexpr int kHeader = 4, kRows = 8;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    for (int e = 0; e < 32; ++e) io.byte(32 * (e / 4) + 4 * row + e % 4, f.q[e]);
  }
};

// -------------------------------------------------------------------------------------------------- floats of 4 bits

/// Index of the value of the fp4 table times `d` that is nearest to x, the lowest of equals.
std::uint8_t nearest_fp4(float x, float d) {
  int best = 0;
  float least = std::fabs(static_cast<float>(kFp4[0]) * d - x);
  for (int i = 1; i < 16; ++i) {
    const float error = std::fabs(static_cast<float>(kFp4[i]) * d - x);
    if (error < least) {
      least = error;
      best = i;
    }
  }
  return static_cast<std::uint8_t>(best);
}

/// 2^(e - 128), a denormal for 0 and 1.
[[nodiscard]] float half_power(std::uint8_t e) {
  return std::bit_cast<float>(e < 2 ? std::uint32_t{0x00200000} << e : static_cast<std::uint32_t>(e - 1) << 23);
}

struct MXFP4 : FieldFormat<32, 17> {
  static constexpr int kReach = 12;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.byte(0, f.scale[0]);
    nibbles_by_16(io, 1, f, 32);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 32; ++e) code[e] = kFp4[f.q[e]];
    set_scale(half_power(f.scale[0]), scale, add);
  }
  static bool sane(const F& f) { return f.scale[0] != 255; }
  static float encode(const float* x, const float* /*importance*/, std::int64_t k, F* fields) {
    for (std::int64_t b = 0; b < k / 32; ++b) {
      const float most = largest(x + 32 * b, 32);
      const int e = most > 0 ? static_cast<int>(std::floor(std::log2(std::min(most, 3e38f)))) - 2 + 127 : 0;
      fields[b].scale[0] = static_cast<std::uint8_t>(std::clamp(e, 0, 254));
      const float d = half_power(fields[b].scale[0]);
      for (int i = 0; i < 32; ++i) fields[b].q[i] = nearest_fp4(x[32 * b + i], d);
    }
    return 0;
  }
};

struct MXFP4_R8 : MXFP4 {
  static constexpr int kRows = 8;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    io.byte(row, f.scale[0]);
    nibbles_r8(io, 8, row, f);
  }
};

/// Half of an unsigned E4M3 number.
[[nodiscard]] float half_e4m3(std::uint8_t x) {
  if (x == 0 || x == 127) return 0;
  const int e = (x >> 3) & 15, m = x & 7;
  const float value = e == 0 ? static_cast<float>(m) * 0x1p-9f : std::ldexp(1 + static_cast<float>(m) / 8, e - 7);
  return value / 2;
}

/// Rounds half up; what is too large becomes 448.
[[nodiscard]] std::uint8_t to_e4m3(float x) {
  if (!(x > 0)) return 0;
  x = std::min(x, 448.0f);
  const auto bits = std::bit_cast<std::uint32_t>(x);
  int e = static_cast<int>(bits >> 23) - 127 + 7;
  if (e <= 0) return static_cast<std::uint8_t>(std::min(7, truncate(x * 512 + 0.5f)));
  if (e >= 15) return 126;
  int m = static_cast<int>((bits >> 20) & 7) + static_cast<int>((bits >> 19) & 1);
  if (m > 7) {
    m = 0;
    ++e;
  }
  return static_cast<std::uint8_t>(e >= 15 ? 126 : e << 3 | m);
}

struct NVFP4 : FieldFormat<64, 36> {
  static constexpr int kReach = 12, kGroup = 16;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int g = 0; g < 4; ++g) io.byte(g, f.scale[g]);
    for (int e = 0; e < 64; ++e) io.bits(4 + 8 * (e / 16) + e % 8, 4 * (e % 16 / 8), 4, f.q[e]);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 64; ++e) code[e] = kFp4[f.q[e]];
    for (int g = 0; g < 4; ++g) {
      scale[g] = half_e4m3(f.scale[g]);
      add[g] = 0;
    }
  }
  static float encode(const float* x, const float* /*importance*/, std::int64_t k, F* fields) {
    for (std::int64_t i = 0; i < k; i += 16) {
      F& f = fields[i / 64];
      std::uint8_t& scale = f.scale[i % 64 / 16];
      scale = to_e4m3(largest(x + i, 16) / 6);
      const float d = half_e4m3(scale);
      for (int j = 0; j < 16; ++j) f.q[i % 64 + j] = nearest_fp4(x[i + j], d);
    }
    return 0;
  }
};

// -------------------------------------------------------------------------------------- one bit, two bits, ternary

struct Q1_0 : FieldFormat<128, 18> {
  static constexpr int kReach = 1;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int e = 0; e < 128; ++e) io.bits(2 + e / 8, e % 8, 1, f.q[e]);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 128; ++e) code[e] = f.q[e] != 0 ? 1 : -1;
    for (int g = 0; g < 4; ++g) set_scale(f16_to_f32(f.d), scale + 2 * g, add + 2 * g);
  }
  static float encode(const float* x, const float* /*importance*/, std::int64_t k, F* fields) {
    for (std::int64_t b = 0; b < k / 128; ++b) {
      float sum = 0;
      for (int i = 0; i < 128; ++i) {
        sum += std::fabs(x[128 * b + i]);
        fields[b].q[i] = x[128 * b + i] >= 0;
      }
      fields[b].d = f32_to_f16(sum / 128);
    }
    return 0;
  }
};

struct Q2_0 : FieldFormat<64, 18> {
  static constexpr int kReach = 2;
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(0, f.d);
    for (int e = 0; e < 64; ++e) io.bits(2 + e / 4, 2 * (e % 4), 2, f.q[e]);
  }
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 64; ++e) code[e] = static_cast<std::int8_t>(f.q[e] - 1);
    for (int g = 0; g < 2; ++g) set_scale(f16_to_f32(f.d), scale + 2 * g, add + 2 * g);
  }
  static float encode(const float* x, const float* /*importance*/, std::int64_t k, F* fields) {
    for (std::int64_t b = 0; b < k / 64; ++b) {
      const float d = largest(x + 64 * b, 64), id = inverse(d);
      fields[b].d = f32_to_f16(d);
      for (int i = 0; i < 64; ++i) {
        fields[b].q[i] = static_cast<std::uint8_t>(std::clamp(round_away(x[64 * b + i] * id) + 1, 0, 3));
      }
    }
    return 0;
  }
};

/// 256 codes 0, 1, 2 for -1, 0, 1 times one scale.
template <int Bytes>
struct Ternary : FieldFormat<256, Bytes> {
  using F = Fields<256>;
  static constexpr int kReach = 2;
  static void values(const F& f, float /*d*/, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 256; ++e) code[e] = static_cast<std::int8_t>(f.q[e] - 1);
    for (int g = 0; g < 8; ++g) set_scale(f16_to_f32(f.d), scale + 2 * g, add + 2 * g);
  }
  static float encode(const float* x, const float* /*importance*/, std::int64_t k, F* fields) {
    for (std::int64_t b = 0; b < k / 256; ++b) {
      const float d = largest(x + 256 * b, 256), id = inverse(d);
      fields[b].d = f32_to_f16(d);
      for (int i = 0; i < 256; ++i) {
        fields[b].q[i] = static_cast<std::uint8_t>(std::clamp(round_away(x[256 * b + i] * id) + 1, 0, 2));
      }
    }
    return 0;
  }
};

struct TQ2_0 : Ternary<66> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    pairs_by_32(io, 0, f);
    io.half(64, f.d);
  }
};

/// Five digits of base 3 share a byte: it is ceil(256 N / 243), so that multiplying by 3 pushes the first digit out.
struct TQ1_0 : Ternary<54> {
  static constexpr int kPower[5] = {1, 3, 9, 27, 81};
  struct Place {
    int byte, digit;
  };
  static Place place(int e) {
    if (e < 160) return {e % 32, e / 32};
    if (e < 240) return {32 + (e - 160) % 16, (e - 160) / 16};
    return {48 + (e - 240) % 4, (e - 240) / 4};
  }
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    io.half(52, f.d);
    if constexpr (Io::kReads) {
      for (int e = 0; e < 256; ++e) {
        const Place at = place(e);
        unsigned byte = 0;
        io.byte(at.byte, byte);
        f.q[e] = static_cast<std::uint8_t>((((byte * static_cast<unsigned>(kPower[at.digit])) & 255) * 3) >> 8);
      }
    } else {
      unsigned number[52] = {};
      for (int e = 0; e < 256; ++e) {
        const Place at = place(e);
        number[at.byte] += f.q[e] * static_cast<unsigned>(kPower[4 - at.digit]);
      }
      for (int i = 0; i < 52; ++i) {
        unsigned byte = (number[i] * 256 + 242) / 243;
        io.byte(i, byte);
      }
    }
  }
};

/// Three values over a whole row: -1, 0, 1 times its largest magnitude.
template <int Bytes, int Header>
struct RowTernary : FieldFormat<64, Bytes> {
  using F = Fields<64>;
  static constexpr int kHeader = Header, kReach = 2;
  static void values(const F& f, float d, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < 64; ++e) code[e] = static_cast<std::int8_t>(f.q[e] - 1);
    for (int g = 0; g < 2; ++g) set_scale(d, scale + 2 * g, add + 2 * g);
  }
  static float encode(const float* x, const float* /*importance*/, std::int64_t k, F* fields) {
    const float d = largest(x, k);
    for (std::int64_t i = 0; i < k; ++i) {
      fields[i / 64].q[i % 64] = !(std::fabs(x[i]) >= d / 2) ? 1 : x[i] < 0 ? 0 : 2;
    }
    return d;
  }
};

struct IQ2_BN : RowTernary<16, 4> {
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    for (int e = 0; e < 64; ++e) io.bits(e % 16, 2 * (e / 16), 2, f.q[e]);
  }
};

struct IQ2_BN_R4 : IQ2_BN {
  static constexpr int kRows = 4;
  template <class Io>
  static void layout(Io io, int row, F& f) {
    for (int e = 0; e < 64; ++e) io.bits(16 * (e / 16) + 4 * row + e % 4, 2 * (e % 16 / 4), 2, f.q[e]);
  }
};

struct IQ1_BN : RowTernary<13, 2> {
  static constexpr int kMultiplier[5] = {81, 27, 9, 3, 1};
  template <class Io>
  static void layout(Io io, int /*row*/, F& f) {
    unsigned number[13] = {};
    for (int e = 0; e < 64; ++e) {
      const int i = e / 16, r = e % 16, at = r < 15 ? 3 * i + r / 5 : 12, digit = r < 15 ? r % 5 : i;
      if constexpr (Io::kReads) {
        unsigned byte = 0;
        io.byte(at, byte);
        const unsigned v = (byte * static_cast<unsigned>(kMultiplier[digit])) & 255;
        f.q[e] = static_cast<std::uint8_t>((v + (v >> 1)) >> 7);
      } else {
        // Here the digit that the smallest multiplier brings out is the first.
        number[at] += f.q[e] * static_cast<unsigned>(kMultiplier[4 - digit]);
      }
    }
    if constexpr (!Io::kReads) {
      for (int i = 0; i < 13; ++i) {
        unsigned byte = (number[i] * 256 + 242) / 243;
        io.byte(i, byte);
      }
    }
  }
};

}  // namespace

const WeightCodec k_codec_q6_0 = FieldCodec<Q6_0>::kCodec;
const WeightCodec k_codec_q6_0_r4 = FieldCodec<Q6_0_R4, Q6_0>::kCodec;
const WeightCodec k_codec_q8_kv = FieldCodec<Q8_KV>::kCodec;
const WeightCodec k_codec_q8_kv_r8 = FieldCodec<Q8_KV_R8, Q8_KV>::kCodec;
const WeightCodec k_codec_mxfp4 = FieldCodec<MXFP4>::kCodec;
const WeightCodec k_codec_mxfp4_r8 = FieldCodec<MXFP4_R8, MXFP4>::kCodec;
const WeightCodec k_codec_nvfp4 = FieldCodec<NVFP4>::kCodec;
const WeightCodec k_codec_q1_0 = FieldCodec<Q1_0>::kCodec;
const WeightCodec k_codec_q2_0 = FieldCodec<Q2_0>::kCodec;
const WeightCodec k_codec_tq1_0 = FieldCodec<TQ1_0>::kCodec;
const WeightCodec k_codec_tq2_0 = FieldCodec<TQ2_0>::kCodec;
const WeightCodec k_codec_iq1_bn = FieldCodec<IQ1_BN>::kCodec;
const WeightCodec k_codec_iq2_bn = FieldCodec<IQ2_BN>::kCodec;
const WeightCodec k_codec_iq2_bn_r4 = FieldCodec<IQ2_BN_R4, IQ2_BN>::kCodec;

}  // namespace ggml::quant
