// The K types: 256 weights with 8 or 16 scales of their own, which are themselves quantised: Q4_K Q5_K Q6_K.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "quant/block_codec.h"
#include "quant/blocks.h"
#include "quant/search.h"

namespace ggml::quant {
namespace {

constexpr int kSub32 = kSuperBlock / 32;
constexpr int kSub16 = kSuperBlock / 16;

// ------------------------------------------------------------------------------ Q4_K and Q5_K: scales and minima

struct SixBit {
  std::uint8_t scale[kSub32], min[kSub32];
};

SixBit unpack_six_bit(const std::uint8_t* scales) {
  SixBit out{};
  for (int k = 0; k < 4; ++k) {
    out.scale[k] = scales[k] & 63;
    out.min[k] = scales[k + 4] & 63;
    out.scale[k + 4] = static_cast<std::uint8_t>((scales[k + 8] & 15) | (scales[k] >> 6) << 4);
    out.min[k + 4] = static_cast<std::uint8_t>((scales[k + 8] >> 4) | (scales[k + 4] >> 6) << 4);
  }
  return out;
}

void pack_six_bit(const SixBit& in, std::uint8_t* scales) {
  for (int k = 0; k < 4; ++k) {
    scales[k] = static_cast<std::uint8_t>(in.scale[k] | (in.scale[k + 4] >> 4) << 6);
    scales[k + 4] = static_cast<std::uint8_t>(in.min[k] | (in.min[k + 4] >> 4) << 6);
    scales[k + 8] = static_cast<std::uint8_t>((in.scale[k + 4] & 15) | (in.min[k + 4] & 15) << 4);
  }
}

template <class Block>
void decode_scales(const Block& block, float* scale, float* add) {
  const SixBit six = unpack_six_bit(block.scales);
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (int g = 0; g < kSub16; ++g) {
    scale[g] = d * static_cast<float>(six.scale[g / 2]);
    add[g] = -(dmin * static_cast<float>(six.min[g / 2]));
  }
}

/// Scales and minima of one block, found without importance, as floats.
void search_plain(const float* x, int nmax, const MinSearch& search, float* scales, float* mins) {
  for (int j = 0; j < kSub32; ++j) {
    const float* xs = x + 32 * j;
    float square = 0;
    for (int i = 0; i < 32; ++i) square += xs[i] * xs[i];
    const float level = std::sqrt(square / 32);
    float w[32];
    for (int i = 0; i < 32; ++i) w[i] = level + std::fabs(xs[i]);
    std::uint8_t codes[32];
    const ScaleMin fit = fit_with_min(xs, w, 32, nmax, search, codes);
    scales[j] = fit.scale;
    mins[j] = fit.min;
  }
}

/// The same with importance; `sub_weights` receives each sub-block's share, for the choice of the 6-bit scales.
void search_important(const float* x, const float* importance, int nmax, float* scales, float* mins,
                      float* sub_weights) {
  float square = 0;
  for (int i = 0; i < kSuperBlock; ++i) square += x[i] * x[i];
  const float sigma2 = 2 * square / kSuperBlock;
  for (int j = 0; j < kSub32; ++j) {
    const float* xs = x + 32 * j;
    float w[32];
    sub_weights[j] = 0;
    for (int i = 0; i < 32; ++i) {
      w[i] = importance[32 * j + i] * std::sqrt(sigma2 + xs[i] * xs[i]);
      sub_weights[j] += w[i];
    }
    std::uint8_t codes[32];
    const ScaleMin fit = fit_with_min(xs, w, 32, nmax, {-0.9f, 0.05f, 36}, codes);
    scales[j] = fit.scale;
    mins[j] = fit.min;
  }
}

/// Eight non-negative numbers to 6 bits with one scale, which is returned.
float to_six_bit(const float* values, const float* weights, std::uint8_t* out) {
  if (weights != nullptr) return fit_positive(values, weights, kSub32, 63, out);
  const float most = std::max(0.0f, *std::max_element(values, values + kSub32));
  const float inverse = most > 0 ? 63 / most : 0;
  for (int j = 0; j < kSub32; ++j) out[j] = static_cast<std::uint8_t>(std::clamp(nint(inverse * values[j]), 0, 63));
  return most / 63;
}

/// Scales, minima and the codes that go with them as stored: what Q4_K (nmax 15) and Q5_K (nmax 31) share.
template <class Block>
void encode_with_minima(const float* x, const float* importance, int nmax, const MinSearch& plain, Block& block,
                        std::uint8_t* codes) {
  float scales[kSub32], mins[kSub32], weights[kSub32];
  if (importance != nullptr) {
    search_important(x, importance, nmax, scales, mins, weights);
  } else {
    search_plain(x, nmax, plain, scales, mins);
  }
  const float* w = importance != nullptr ? weights : nullptr;
  SixBit six{};
  block.d = f32_to_f16(to_six_bit(scales, w, six.scale));
  block.dmin = f32_to_f16(to_six_bit(mins, w, six.min));
  pack_six_bit(six, block.scales);
  // The stored scales are rounded, so the codes are chosen anew for them.
  for (int j = 0; j < kSub32; ++j) {
    const float scale = f16_to_f32(block.d) * six.scale[j], min = f16_to_f32(block.dmin) * six.min[j];
    for (int i = 0; i < 32; ++i) {
      const float v = scale != 0 ? (x[32 * j + i] + min) / scale : 0;
      codes[32 * j + i] = static_cast<std::uint8_t>(std::clamp(nint(v), 0, nmax));
    }
  }
}

/// Nibbles of 256: pairs of sub-blocks share 32 bytes, the first one has the low halves.
void store_nibbles(const std::uint8_t* codes, std::uint8_t* qs) {
  for (int e = 0; e < kSuperBlock; e += 64) {
    for (int i = 0; i < 32; ++i) {
      qs[e / 2 + i] = static_cast<std::uint8_t>((codes[e + i] & 15) | (codes[e + 32 + i] & 15) << 4);
    }
  }
}

[[nodiscard]] int nibble(const std::uint8_t* qs, int e) {
  return (qs[32 * (e / 64) + e % 32] >> 4 * (e / 32 % 2)) & 15;
}

struct Q4_K {
  using Block = BlockQ4_K;
  static constexpr int kWeights = kSuperBlock;
  static constexpr bool kHasMin = true;
  static constexpr int kReach = 15;
  static void decode(const Block& block, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < kSuperBlock; ++e) code[e] = static_cast<std::int8_t>(nibble(block.qs, e));
    decode_scales(block, scale, add);
  }
  static bool sane(const Block& block) { return finite_half(block.d) && finite_half(block.dmin); }
  static void encode(const float* x, const float* importance, std::int64_t k, Block* out) {
    for (std::int64_t b = 0; b < k / kSuperBlock; ++b) {
      const float* w = importance != nullptr ? importance + b * kSuperBlock : nullptr;
      std::uint8_t codes[kSuperBlock];
      encode_with_minima(x + b * kSuperBlock, w, 15, {-1, 0.1f, 20}, out[b], codes);
      store_nibbles(codes, out[b].qs);
    }
  }
};

struct Q5_K {
  using Block = BlockQ5_K;
  static constexpr int kWeights = kSuperBlock;
  static constexpr bool kHasMin = true;
  static constexpr int kReach = 31;
  static void decode(const Block& block, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < kSuperBlock; ++e) {
      code[e] = static_cast<std::int8_t>(nibble(block.qs, e) + 16 * ((block.qh[e % 32] >> e / 32) & 1));
    }
    decode_scales(block, scale, add);
  }
  static bool sane(const Block& block) { return finite_half(block.d) && finite_half(block.dmin); }
  static void encode(const float* x, const float* importance, std::int64_t k, Block* out) {
    for (std::int64_t b = 0; b < k / kSuperBlock; ++b) {
      const float* w = importance != nullptr ? importance + b * kSuperBlock : nullptr;
      std::uint8_t codes[kSuperBlock];
      encode_with_minima(x + b * kSuperBlock, w, 31, {-0.5f, 0.1f, 15}, out[b], codes);
      store_nibbles(codes, out[b].qs);
      std::fill_n(out[b].qh, 32, static_cast<std::uint8_t>(0));
      for (int e = 0; e < kSuperBlock; ++e) {
        out[b].qh[e % 32] = static_cast<std::uint8_t>(out[b].qh[e % 32] | (codes[e] >> 4) << e / 32);
      }
    }
  }
};

// -------------------------------------------------------------------------------------------------------- Q6_K

struct Q6_K {
  using Block = BlockQ6_K;
  static constexpr int kWeights = kSuperBlock;
  static constexpr bool kHasMin = false;
  static constexpr int kReach = 32;

  static void decode(const Block& block, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < kSuperBlock; ++e) {
      const int n = e / 128, g = e % 128 / 32, l = e % 32;
      const int lo = (block.ql[64 * n + 32 * (g % 2) + l] >> 4 * (g / 2)) & 15;
      const int hi = (block.qh[32 * n + l] >> 2 * g) & 3;
      code[e] = static_cast<std::int8_t>((lo | hi << 4) - 32);
    }
    for (int g = 0; g < kSub16; ++g) {
      scale[g] = f16_to_f32(block.d) * static_cast<float>(block.scales[g]);
      add[g] = 0;
    }
  }
  static bool sane(const Block& block) { return finite_half(block.d); }

  static void encode(const float* x, const float* importance, std::int64_t k, Block* out) {
    for (std::int64_t b = 0; b < k / kSuperBlock; ++b) {
      encode_block(x + b * kSuperBlock, importance != nullptr ? importance + b * kSuperBlock : nullptr, out[b]);
    }
  }

  static void encode_block(const float* x, const float* importance, Block& block) {
    std::uint8_t codes[kSuperBlock];
    float scales[kSub16];
    for (int g = 0; g < kSub16; ++g) {
      float w[16];
      for (int i = 0; i < 16; ++i) {
        const float v = x[16 * g + i];
        w[i] = importance != nullptr ? importance[16 * g + i] : v * v;
      }
      scales[g] = importance != nullptr ? fit_either_sign(x + 16 * g, w, 16, 32, codes + 16 * g)
                                        : fit_symmetric(x + 16 * g, w, 16, 32, codes + 16 * g);
    }
    std::memset(&block, 0, sizeof(block));
    const float extreme = signed_max(scales, kSub16);
    if (std::fabs(extreme) < 1e-15f) return;  // a zero block: scales 0, so the codes do not matter
    const float inverse = -128 / extreme;
    block.d = f32_to_f16(1 / inverse);
    for (int g = 0; g < kSub16; ++g) {
      block.scales[g] = static_cast<std::int8_t>(std::clamp(nint(inverse * scales[g]), -128, 127));
      if (importance != nullptr) block.scales[g] = best_neighbour(x + 16 * g, importance + 16 * g, block, g);
      const float scale = f16_to_f32(block.d) * static_cast<float>(block.scales[g]);
      if (scale == 0) continue;
      for (int i = 0; i < 16; ++i) {
        codes[16 * g + i] = static_cast<std::uint8_t>(std::clamp(nint(x[16 * g + i] / scale), -32, 31) + 32);
      }
    }
    store(codes, block);
  }

  /// Of the rounded scale of group g and those next to it, the one that its weights are closest to.
  static std::int8_t best_neighbour(const float* x, const float* w, const Block& block, int g) {
    auto best = static_cast<int>(block.scales[g]);
    float least = -1;
    for (const int step : {0, -1, 1, -2, 2}) {
      const int factor = std::clamp(block.scales[g] + step, -128, 127);
      const float scale = f16_to_f32(block.d) * static_cast<float>(factor);
      float error = 0;
      for (int i = 0; i < 16; ++i) {
        const int code = scale != 0 ? std::clamp(nint(x[i] / scale), -32, 31) : 0;
        const float diff = x[i] - scale * static_cast<float>(code);
        error += w[i] * diff * diff;
      }
      if (least >= 0 && !(error < least)) continue;
      least = error;
      best = factor;
    }
    return static_cast<std::int8_t>(best);
  }

  static void store(const std::uint8_t* codes, Block& block) {
    for (int e = 0; e < kSuperBlock; ++e) {
      const int n = e / 128, g = e % 128 / 32, l = e % 32;
      std::uint8_t& lo = block.ql[64 * n + 32 * (g % 2) + l];
      std::uint8_t& hi = block.qh[32 * n + l];
      lo = static_cast<std::uint8_t>(lo | (codes[e] & 15) << 4 * (g / 2));
      hi = static_cast<std::uint8_t>(hi | (codes[e] >> 4) << 2 * g);
    }
  }
};

}  // namespace

const WeightCodec k_codec_q4_k = kBlockCodec<Q4_K>;
const WeightCodec k_codec_q5_k = kBlockCodec<Q5_K>;
const WeightCodec k_codec_q6_k = kBlockCodec<Q6_K>;

}  // namespace ggml::quant
