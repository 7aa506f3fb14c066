#include <bit>
#include <cmath>
#include <cstring>

#include "ggml/quant.h"
#include "quant/codec.h"

namespace ggml {

// Half is built from float arithmetic where that rounds as wanted: adding a power of two whose last place is the half's
// last place rounds the float to it, to nearest even, for normal and denormal halves alike.
std::uint16_t f32_to_f16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x1ff));
  if (magnitude >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);  // 65520 and up round to infinity
  if (magnitude < 0x38800000) {                                                   // below 2^-14: a denormal half
    constexpr float kLastPlace = 0.5f;  // 2^-1 has its last place at 2^-24, the smallest half
    const float rounded = std::bit_cast<float>(magnitude) + kLastPlace;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

float f16_to_f32(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | ((magnitude & 0x3ff) << 13));
  if (magnitude < 0x400) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
}

std::uint16_t f32_to_bf16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace ggml

namespace ggml::quant {
namespace {

/// Elements of 16 bits with conversions of their own.
template <auto ToFloat, auto FromFloat, std::uint16_t kExponent>
struct Half {
  static void dequantise(const std::byte* row, int /*row*/, std::int64_t k, float* dst) noexcept {
    for (std::int64_t i = 0; i < k; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, row + 2 * i, 2);
      dst[i] = ToFloat(bits);
    }
  }
  static void quantise(const float* src, const float* /*importance*/, std::int64_t k, std::byte* dst) noexcept {
    for (std::int64_t i = 0; i < k; ++i) {
      const std::uint16_t bits = FromFloat(src[i]);
      std::memcpy(dst + 2 * i, &bits, 2);
    }
  }
  static std::int64_t find_bad(const std::byte* row, std::int64_t k) noexcept {
    for (std::int64_t i = 0; i < k; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, row + 2 * i, 2);
      if ((bits & kExponent) == kExponent) return i;
    }
    return -1;
  }
};
using F16 = Half<f16_to_f32, f32_to_f16, 0x7c00>;
using BF16 = Half<bf16_to_f32, f32_to_bf16, 0x7f80>;

void dequantise_f32(const std::byte* row, int /*row*/, std::int64_t k, float* dst) noexcept {
  if (k > 0) std::memcpy(dst, row, static_cast<std::size_t>(k) * sizeof(float));
}

void quantise_f32(const float* src, const float* /*importance*/, std::int64_t k, std::byte* dst) noexcept {
  if (k > 0) std::memcpy(dst, src, static_cast<std::size_t>(k) * sizeof(float));
}

std::int64_t find_bad_f32(const std::byte* row, std::int64_t k) noexcept {
  for (std::int64_t i = 0; i < k; ++i) {
    float value = 0;
    std::memcpy(&value, row + 4 * i, 4);
    if (!std::isfinite(value)) return i;
  }
  return -1;
}

/// Sixteen rows together, two columns of each at a time.
struct InterleavedBF16 {
  static constexpr int kRows = 16;
  static std::int64_t place(int row, std::int64_t column) { return 2 * kRows * (column / 2) + 2 * row + column % 2; }
  static void dequantise(const std::byte* group, int row, std::int64_t k, float* dst) noexcept {
    for (std::int64_t i = 0; i < k; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, group + 2 * place(row, i), 2);
      dst[i] = bf16_to_f32(bits);
    }
  }
  /// Cuts the lower half off, as the type's writer does.
  static void quantise(const float* src, const float* /*importance*/, std::int64_t k, std::byte* dst) noexcept {
    for (int row = 0; row < kRows; ++row) {
      for (std::int64_t i = 0; i < k; ++i) {
        const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(src[row * k + i]) >> 16);
        std::memcpy(dst + 2 * place(row, i), &bits, 2);
      }
    }
  }
  static std::int64_t find_bad(const std::byte* group, std::int64_t k) noexcept {
    const std::int64_t bad = BF16::find_bad(group, kRows * k);
    return bad < 0 ? bad : bad / (2 * kRows);
  }
};

}  // namespace

const WeightCodec k_codec_bf16_r16{InterleavedBF16::dequantise, InterleavedBF16::quantise, InterleavedBF16::find_bad,
                                   nullptr};
const WeightCodec k_codec_f32{dequantise_f32, quantise_f32, find_bad_f32, nullptr};
const WeightCodec k_codec_f16{F16::dequantise, F16::quantise, F16::find_bad, nullptr};
const WeightCodec k_codec_bf16{BF16::dequantise, BF16::quantise, BF16::find_bad, nullptr};
// Index tables and the like: they occur in files, but nothing multiplies them.
const WeightCodec k_codec_i8{};
const WeightCodec k_codec_i16{};
const WeightCodec k_codec_i32{};
const WeightCodec k_codec_i64{};
const WeightCodec k_codec_f64{};

}  // namespace ggml::quant
