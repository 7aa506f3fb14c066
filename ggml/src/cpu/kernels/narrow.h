#pragma once

#include "cpu/kernels/kernels.h"
#include "quant/codec.h"

/// Code for all vector levels that is 256 bits wide on each of them.
///
/// Products with one to four activation rows straight from the blocks, for types that are unpacked for larger ones
/// (unpacked.h). One unit of x86-64-v3 serves all vector levels: 256 bits wide code is what these decoders are made of,
/// and one unit is a quarter of the time to compile. Only the units of unpacked types may call it.
namespace ggml::cpu {

inline constexpr std::int64_t kNarrowRows = 4;

/// Multiplies up to kNarrowRows activation rows with a matrix of type `type`; null where the type has no such function.
[[nodiscard]] MatmulFn narrow_function(DType type) noexcept;

/// The same for one activation row alone: by what unpacks a piece, which is multiplied before it reaches memory.
[[nodiscard]] MatmulFn single_row_function(DType type) noexcept;

/// What does the work of the codec's unpack(), in vectors; null where the type has none.
[[nodiscard]] quant::UnpackFn vector_unpack(DType type) noexcept;

/// 256 columns of four or eight rows of a group. Weights are scale * (code - zero) + add.
///
/// Of four rows, 32 bytes of codes are columns 4 s .. 4 s + 3 of 32, in their upper half columns 16 + 4 s ..; each half
/// has four codes of each row. The eight scales of 32 columns stand as these rows do. Of eight rows, 32 bytes are four
/// codes of each.
struct alignas(64) RowsPiece {
  std::uint8_t code[8 * kActPiece];
  float scale[8][8];
  float add[8][8];
};
/// How the rows of a group of an interleaved type are unpacked side by side.
struct RowsForm {
  /// Columns [256 * piece, min(k, 256 * piece + 256)); what lies past k stays as it was.
  void (*fill)(const std::byte* group, std::int64_t k, std::int64_t piece, RowsPiece& out) noexcept = nullptr;
  int rows = 0;  // of a group: 4 or 8
  int zero = 0;
  bool has_min = false;  // there is an `add`
};
/// Null for types that have no such form.
[[nodiscard]] const RowsForm* rows_form(DType type) noexcept;

}  // namespace ggml::cpu
