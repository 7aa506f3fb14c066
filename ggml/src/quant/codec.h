#pragma once

#include <cstddef>
#include <cstdint>

/// The plain form of each tensor type: what the tests and the scalar kernels trust. One constant per row of types.def.
namespace ggml::quant {

inline constexpr int kPiece = 256;  // weights that unpack() handles at once
inline constexpr int kGroup = 16;   // the finest grain of scales over all types

/// Up to 256 consecutive weights of a row, integers and scales apart:
/// weight e = scale[e / 16] * code[e] + add[e / 16], two roundings. Kernels read it with whole vectors.
struct alignas(64) Piece {
  std::int8_t code[kPiece];  // centred: what multiplies the scale
  float scale[kPiece / kGroup];
  float add[kPiece / kGroup];
};

/// `group` is where a group of interleaved rows starts and `row` the row inside it; for most types a group is a row and
/// `row` is 0.
using UnpackFn = int (*)(const std::byte* group, int row, std::int64_t k, std::int64_t piece, Piece& out) noexcept;

struct WeightCodec {
  /// Decodes `k` weights of a row. Null when the type is no weight.
  void (*dequantise)(const std::byte* group, int row, std::int64_t k, float* dst) noexcept = nullptr;
  /// Encodes a whole group: `src` is [k, rows of a group]; `importance` is null or has k entries.
  void (*quantise)(const float* src, const float* importance, std::int64_t k, std::byte* dst) noexcept = nullptr;
  /// Index of the first block of the group with a NaN or infinite scale, or -1.
  std::int64_t (*find_bad)(const std::byte* group, std::int64_t k) noexcept = nullptr;
  /// Weights [256 * piece, min(k, 256 * piece + 256)) of a row; returns how many. Null for the float types.
  UnpackFn unpack = nullptr;
  int reach = 128;       // no code has a greater magnitude
  int group = kGroup;    // weights that share a scale: 16, or 32 (then scale[] holds each one twice)
  bool has_min = false;  // add[] is not all zero
  /// Of interleaved types: a whole group from adjacent rows of the type that has the same weights in plain rows.
  void (*interleave)(const std::byte* rows, std::int64_t k, std::byte* group) noexcept = nullptr;
};

#define QTYPE(id, num, name, weights, bytes, header, rows, trailer, kv, act) extern const WeightCodec k_codec_##id;
#include "types.def"
#undef QTYPE

/// The codec with the DType value `type`; never null.
[[nodiscard]] const WeightCodec& codec(int type) noexcept;

}  // namespace ggml::quant
