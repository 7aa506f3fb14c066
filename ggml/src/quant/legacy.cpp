// The blocks of 32 weights with one scale, with or without a minimum: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "quant/block_codec.h"
#include "quant/blocks.h"
#include "quant/rounding.h"
#include "quant/search.h"

namespace ggml::quant {
namespace {

constexpr int kBlock = 32;

[[nodiscard]] std::uint32_t high_bits(const std::uint16_t (&qh)[2]) {
  return qh[0] | static_cast<std::uint32_t>(qh[1]) << 16;
}

/// code[0..31] = the nibbles in file order: low ones first, then high ones.
void nibbles(const std::uint8_t* qs, std::int8_t* code) {
  for (int i = 0; i < 16; ++i) {
    code[i] = static_cast<std::int8_t>(qs[i] & 15);
    code[i + 16] = static_cast<std::int8_t>(qs[i] >> 4);
  }
}

void add_high_bits(std::uint32_t qh, std::int8_t* code) {
  for (int i = 0; i < kBlock; ++i) code[i] = static_cast<std::int8_t>(code[i] + 16 * ((qh >> i) & 1));
}

void store_nibbles(const int* q, std::uint8_t* qs) {
  for (int i = 0; i < 16; ++i) qs[i] = static_cast<std::uint8_t>((q[i] & 15) | (q[i + 16] & 15) << 4);
}

void store_high_bits(const int* q, std::uint16_t (&qh)[2]) {
  std::uint32_t bits = 0;
  for (int i = 0; i < kBlock; ++i) bits |= static_cast<std::uint32_t>((q[i] >> 4) & 1) << i;
  qh[0] = static_cast<std::uint16_t>(bits);
  qh[1] = static_cast<std::uint16_t>(bits >> 16);
}

[[nodiscard]] float mean_square(const float* x, std::int64_t k) {
  float sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum += x[i] * x[i];
  return sum / static_cast<float>(k);
}

/// The weights of the searches: importance times the size of the value, damped by the row's mean square.
void search_weights(const float* x, const float* importance, float sigma2, float* w) {
  for (int i = 0; i < kBlock; ++i) w[i] = importance[i] * std::sqrt(sigma2 + x[i] * x[i]);
}

/// Symmetric codes around nmax = 8 (Q4_0) or 16 (Q5_0): scale and codes of one block. Returns the scale to store.
float encode_symmetric(const float* x, const float* w, int nmax, int* q) {
  if (w != nullptr) {
    std::uint8_t codes[kBlock];
    const float d = fit_symmetric(x, w, kBlock, nmax, codes);
    std::copy_n(codes, kBlock, q);
    return d;
  }
  const float d = signed_max(x, kBlock) / static_cast<float>(-nmax);
  const float id = inverse(d);
  for (int i = 0; i < kBlock; ++i) {
    q[i] = std::clamp(truncate(x[i] * id + (static_cast<float>(nmax) + 0.5f)), 0, 2 * nmax - 1);
  }
  return d;
}

/// Codes 0..top with a minimum (Q4_1: 15, Q5_1: 31). Returns {scale, -minimum}.
ScaleMin encode_with_min(const float* x, const float* w, int top, int* q) {
  if (w != nullptr) {
    std::uint8_t codes[kBlock];
    const ScaleMin fit = fit_with_min(x, w, kBlock, top, {-0.9f, 0.05f, 36}, codes);
    std::copy_n(codes, kBlock, q);
    return fit;
  }
  // A NaN loses both comparisons, as it must not become the minimum of a block of numbers.
  float lo = std::numeric_limits<float>::max(), hi = std::numeric_limits<float>::lowest();
  for (int i = 0; i < kBlock; ++i) {
    if (x[i] < lo) lo = x[i];
    if (x[i] > hi) hi = x[i];
  }
  const float d = (hi - lo) / static_cast<float>(top);
  const float id = inverse(d);
  for (int i = 0; i < kBlock; ++i) q[i] = std::clamp(truncate((x[i] - lo) * id + 0.5f), 0, top);
  return {d, -lo};
}

void fill_scales(float scale, float add, float* scales, float* adds) {
  scales[0] = scales[1] = scale;
  adds[0] = adds[1] = add;
}

/// Runs `one(x, w or null, block)` over a row, with the searches' weights where importance is given.
template <class Block, class One>
void encode_row(const float* x, const float* importance, std::int64_t k, Block* out, One one) {
  const float sigma2 = importance != nullptr ? mean_square(x, k) : 0;
  for (std::int64_t b = 0; b < k / kBlock; ++b) {
    float w[kBlock];
    if (importance != nullptr) search_weights(x + b * kBlock, importance + b * kBlock, sigma2, w);
    one(x + b * kBlock, importance != nullptr ? w : nullptr, out[b]);
  }
}

struct Q4_0 {
  using Block = BlockQ4_0;
  static constexpr int kWeights = kBlock;
  static constexpr bool kHasMin = false;
  static constexpr int kReach = 8;
  static void decode(const Block& block, std::int8_t* code, float* scale, float* add) {
    nibbles(block.qs, code);
    for (int i = 0; i < kBlock; ++i) code[i] = static_cast<std::int8_t>(code[i] - 8);
    fill_scales(f16_to_f32(block.d), 0, scale, add);
  }
  static bool sane(const Block& block) { return finite_half(block.d); }
  static void encode(const float* x, const float* importance, std::int64_t k, Block* out) {
    encode_row(x, importance, k, out, [](const float* xb, const float* w, Block& block) {
      int q[kBlock];
      block.d = f32_to_f16(encode_symmetric(xb, w, 8, q));
      store_nibbles(q, block.qs);
    });
  }
};

struct Q4_1 {
  using Block = BlockQ4_1;
  static constexpr int kWeights = kBlock;
  static constexpr bool kHasMin = true;
  static constexpr int kReach = 15;
  static void decode(const Block& block, std::int8_t* code, float* scale, float* add) {
    nibbles(block.qs, code);
    fill_scales(f16_to_f32(block.d), f16_to_f32(block.m), scale, add);
  }
  static bool sane(const Block& block) { return finite_half(block.d) && finite_half(block.m); }
  static void encode(const float* x, const float* importance, std::int64_t k, Block* out) {
    encode_row(x, importance, k, out, [](const float* xb, const float* w, Block& block) {
      int q[kBlock];
      const ScaleMin fit = encode_with_min(xb, w, 15, q);
      block.d = f32_to_f16(fit.scale);
      block.m = f32_to_f16(-fit.min);
      store_nibbles(q, block.qs);
    });
  }
};

struct Q5_0 {
  using Block = BlockQ5_0;
  static constexpr int kWeights = kBlock;
  static constexpr bool kHasMin = false;
  static constexpr int kReach = 16;
  static void decode(const Block& block, std::int8_t* code, float* scale, float* add) {
    nibbles(block.qs, code);
    add_high_bits(high_bits(block.qh), code);
    for (int i = 0; i < kBlock; ++i) code[i] = static_cast<std::int8_t>(code[i] - 16);
    fill_scales(f16_to_f32(block.d), 0, scale, add);
  }
  static bool sane(const Block& block) { return finite_half(block.d); }
  static void encode(const float* x, const float* importance, std::int64_t k, Block* out) {
    encode_row(x, importance, k, out, [](const float* xb, const float* w, Block& block) {
      int q[kBlock];
      block.d = f32_to_f16(encode_symmetric(xb, w, 16, q));
      store_nibbles(q, block.qs);
      store_high_bits(q, block.qh);
    });
  }
};

struct Q5_1 {
  using Block = BlockQ5_1;
  static constexpr int kWeights = kBlock;
  static constexpr bool kHasMin = true;
  static constexpr int kReach = 31;
  static void decode(const Block& block, std::int8_t* code, float* scale, float* add) {
    nibbles(block.qs, code);
    add_high_bits(high_bits(block.qh), code);
    fill_scales(f16_to_f32(block.d), f16_to_f32(block.m), scale, add);
  }
  static bool sane(const Block& block) { return finite_half(block.d) && finite_half(block.m); }
  static void encode(const float* x, const float* importance, std::int64_t k, Block* out) {
    encode_row(x, importance, k, out, [](const float* xb, const float* w, Block& block) {
      int q[kBlock];
      const ScaleMin fit = encode_with_min(xb, w, 31, q);
      block.d = f32_to_f16(fit.scale);
      block.m = f32_to_f16(-fit.min);
      store_nibbles(q, block.qs);
      store_high_bits(q, block.qh);
    });
  }
};

struct Q8_0 {
  using Block = BlockQ8_0;
  static constexpr int kWeights = kBlock;
  static constexpr bool kHasMin = false;
  static constexpr int kReach = 128;
  static void decode(const Block& block, std::int8_t* code, float* scale, float* add) {
    std::copy_n(block.qs, kBlock, code);
    fill_scales(f16_to_f32(block.d), 0, scale, add);
  }
  static bool sane(const Block& block) { return finite_half(block.d); }
  static void encode(const float* x, const float* /*importance*/, std::int64_t k, Block* out) {
    for (std::int64_t b = 0; b < k / kBlock; ++b) {
      const float* xb = x + b * kBlock;
      const float d = std::fabs(signed_max(xb, kBlock)) / 127;
      const float id = inverse(d);
      out[b].d = f32_to_f16(d);
      for (int i = 0; i < kBlock; ++i) {
        const float scaled = xb[i] * id;  // ties away from zero here; activations tie to even
        out[b].qs[i] =
            static_cast<std::int8_t>(std::fabs(scaled) < 200 ? std::clamp(std::roundf(scaled), -127.0f, 127.0f) : 0.0f);
      }
    }
  }
};

}  // namespace

const WeightCodec k_codec_q4_0 = kBlockCodec<Q4_0>;
const WeightCodec k_codec_q4_1 = kBlockCodec<Q4_1>;
const WeightCodec k_codec_q5_0 = kBlockCodec<Q5_0>;
const WeightCodec k_codec_q5_1 = kBlockCodec<Q5_1>;
const WeightCodec k_codec_q8_0 = kBlockCodec<Q8_0>;

}  // namespace ggml::quant
