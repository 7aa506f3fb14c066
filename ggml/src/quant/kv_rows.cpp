#include "ggml/kv_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ggml/quant.h"
#include "quant/codec.h"
#include "quant/grids.h"
#include "quant/rounding.h"

namespace ggml {
namespace {

constexpr float kMaxByte = 127.0f;
constexpr int kLargestGroup = 64;  // bytes of a block of 32 and of a row's header

using Codes = std::array<std::uint8_t, kKvGroup>;

/// Ties to even; NaN becomes the lowest code, as in the vector conversion.
int rounded(float v, int lo, int hi) {
  if (!(v > static_cast<float>(lo))) return lo;
  return v < static_cast<float>(hi) ? static_cast<int>(std::nearbyint(v)) : hi;
}

float largest_magnitude(const float* x, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

float extreme_of(const float* x) {
  const auto [lo, hi] = std::minmax_element(x, x + kKvGroup);
  return (*hi >= -*lo ? *hi : *lo) + 0.0f;  // a zero has no sign
}

/// Scale and minimum of a group.
struct Scale {
  float d = 0, m = 0;
};

Scale encode_bytes(const float* x, float inverse_scale, Codes& codes) {
  for (int i = 0; i < kKvGroup; ++i)
    codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(rounded(x[i] * inverse_scale, -128, 127));
  return {};
}

Scale encode_symmetric(const float* x, int bits, Codes& codes) {
  const int half = 1 << (bits - 1);
  const float d = extreme_of(x) / static_cast<float>(-half), id = quant::inverse(d);
  for (int i = 0; i < kKvGroup; ++i)
    codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(rounded(x[i] * id, -half, half - 1) + half);
  return {d, 0};
}

Scale encode_with_min(const float* x, int bits, Codes& codes) {
  const int top = (1 << bits) - 1;
  const auto [lo, hi] = std::minmax_element(x, x + kKvGroup);
  const float m = *lo + 0.0f, d = (*hi - m) / static_cast<float>(top), id = quant::inverse(d);
  for (int i = 0; i < kKvGroup; ++i)
    codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(rounded((x[i] - m) * id, 0, top));
  return {d, m};
}

Scale encode_choice(const float* x, Codes& codes) {
  const float d = extreme_of(x) / -kMaxByte, id = quant::inverse(d);
  int hits = 0, squares = 0;
  for (int i = 0; i < kKvGroup; ++i) {
    const int t = rounded(x[i] * id, -128, 127);
    int code = 0;
    for (int k = 0; k < 15; ++k) code += 2 * t > quant::kValues4[k] + quant::kValues4[k + 1] ? 1 : 0;
    codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code);
    hits += t * quant::kValues4[code];
    squares += quant::kValues4[code] * quant::kValues4[code];
  }
  return {d * static_cast<float>(hits) / static_cast<float>(squares), 0};
}

/// The codes in the order of the type's block: the bits above the fourth first, then nibbles.
void pack(const Codes& codes, int bits, std::byte* out) {
  if (bits == 8) {
    std::memcpy(out, codes.data(), codes.size());
    return;
  }
  std::array<std::uint8_t, kKvGroup> bytes{};
  const std::size_t nibbles = std::size_t{4} * static_cast<std::size_t>(bits - 4);
  for (std::size_t e = 0; e < codes.size(); ++e) {
    bytes[nibbles + e % 16] = static_cast<std::uint8_t>(bytes[nibbles + e % 16] | (codes[e] & 15) << (e / 16 * 4));
    const int high = codes[e] >> 4;
    if (bits == 5) bytes[e / 8] = static_cast<std::uint8_t>(bytes[e / 8] | high << (e % 8));
    if (bits == 6) bytes[e % 8] = static_cast<std::uint8_t>(bytes[e % 8] | high << (e % 16 / 8 * 4 + e / 16 * 2));
  }
  std::memcpy(out, bytes.data(), nibbles + 16);
}

Scale encode_group(DType type, const KvForm& form, const float* x, Codes& codes) {
  if (kv_codes_choose(type)) return encode_choice(x, codes);
  if (form.has_min()) return encode_with_min(x, form.bits, codes);
  if (form.bits < 8) return encode_symmetric(x, form.bits, codes);
  const float most = largest_magnitude(x, kKvGroup);
  encode_bytes(x, most != 0 ? kMaxByte / most : 0, codes);
  return {most / kMaxByte, 0};
}

}  // namespace

void encode_kv_row(DType type, const float* src, int dim, std::byte* values, std::byte* scales) noexcept {
  const KvForm form = kv_form(type);
  if (!form.quantised) {
    quant::codec(static_cast<int>(type)).quantise(src, nullptr, dim, values);
    return;
  }
  const float most = form.row_bytes > 0 ? largest_magnitude(src, dim) : 0;
  if (form.row_bytes > 0) {
    const float d = most / kMaxByte;
    std::memcpy(scales, &d, sizeof d);
  }
  for (int group = 0; group < dim / kKvGroup; ++group) {
    Codes codes;
    const float* x = src + group * kKvGroup;
    const Scale scale = form.row_bytes > 0 ? encode_bytes(x, most != 0 ? kMaxByte / most : 0, codes)
                                           : encode_group(type, form, x, codes);
    pack(codes, form.bits, values + std::ptrdiff_t{group} * 4 * form.bits);
    const std::uint16_t halves[] = {f32_to_f16(scale.d), f32_to_f16(scale.m)};
    std::memcpy(scales + form.row_bytes + std::ptrdiff_t{group} * form.group_bytes, halves,
                static_cast<std::size_t>(form.group_bytes));
  }
}

void decode_kv_row(DType type, const std::byte* values, const std::byte* scales, int first, int n,
                   float* dst) noexcept {
  const KvForm form = kv_form(type);
  const TypeInfo& info = type_info(type);
  const quant::WeightCodec& codec = quant::codec(static_cast<int>(type));
  if (!form.quantised) {
    codec.dequantise(values + std::ptrdiff_t{first} * info.block_bytes, 0, n, dst);
    return;
  }
  for (int at = 0; at < n; at += kKvGroup) {
    const std::ptrdiff_t group = (first + at) / kKvGroup;
    // One block as in a file: a row's header (its scale, and a sum that nobody reads), scales, codes.
    std::array<std::byte, kLargestGroup> block{};
    std::memcpy(block.data(), scales, static_cast<std::size_t>(form.row_bytes));
    std::byte* body = block.data() + info.row_header_bytes;
    std::memcpy(body, scales + form.row_bytes + group * form.group_bytes, static_cast<std::size_t>(form.group_bytes));
    std::memcpy(body + form.group_bytes, values + group * 4 * form.bits, form.value_bytes(kKvGroup));
    codec.dequantise(block.data(), 0, kKvGroup, dst + at);
  }
}

}  // namespace ggml
