#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml/tensor.h"
#include "ggml/type.h"

/// How weights lie on the card: planes instead of the file's blocks, so that every read is wide and aligned.
///
/// A row of K weights is K / 32 units. Planes of a unit, all rows of all matrices of a stack one after another:
///
///   codes   16 bytes (4, 5, 6 bits a code): byte j holds the low nibbles of codes j and 16 + j;
///           32 bytes (8 bits): the codes
///   high    4 bytes (5 bits): bit 8 b + w is the fifth bit of code 4 w + b, w < 8;
///           8 bytes (6 bits): bits 2 i and 2 i + 1 of byte j are the high bits of code 8 i + j
///   scales  by form, below
///   supers  one per 256 weights, forms k_min and k_16 only
///
/// Codes are as in the file (unsigned where it is so); `center` is subtracted when they are used. A weight is
/// scale * (code - center) + add. Float types lie in the codes plane as rows of plain values.
namespace ggml::cuda {

enum class ScaleForm : std::uint8_t {
  none,      // float types
  half,      // f16 scale
  half_min,  // f16 scale, f16 minimum that is added
  k_min,     // u8 scale, u8 minimum; supers: f16 d, f16 dmin: scale = d * s, add = -dmin * m
  k_16,      // i8 scale of codes 0..15, i8 of 16..31; supers: f16 d
  wide,      // f32 scale and f32 add of codes 0..15 and of 16..31: any type
};

struct PlaneSpec {
  int code_bits = 0;  // 4, 5, 6, 8; 0: a float type
  ScaleForm form = ScaleForm::none;
  int center = 0;
  DType stored = DType::f32;  // form none: how the values lie in the codes plane
};

/// The planes of a type. Types without a form of their own take 8-bit codes with wide scales.
[[nodiscard]] PlaneSpec plane_spec(DType type) noexcept;

inline constexpr int kUnit = 32;
inline constexpr int kUnitsPerSuper = 8;

/// Bytes per unit of each plane; supers: per 256 weights.
struct PlaneBytes {
  int codes = 0, high = 0, scales = 0, supers = 0;
};
[[nodiscard]] PlaneBytes plane_bytes(const PlaneSpec& spec) noexcept;

/// Where the planes of a tensor start, and how much all of them take.
struct PlaneOffsets {
  std::size_t codes = 0, high = 0, scales = 0, supers = 0, total = 0;
};
[[nodiscard]] PlaneOffsets plane_offsets(DType type, const Shape& shape) noexcept;

/// Rewrites rows [begin, end) (of all rows of the tensor, in the file's order) from `src` (the tensor's first byte) to
/// the planes at `dst`, as they would lie for the whole tensor.
void write_planes(DType type, const Shape& shape, const std::byte* src, std::int64_t begin, std::int64_t end,
                  std::byte* dst) noexcept;

}  // namespace ggml::cuda
