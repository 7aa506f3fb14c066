#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml/type.h"

namespace ggml {

inline constexpr int kKvBlockTokens = 64;
inline constexpr int kKvGroup = 32;  // elements of a quantised type that share a scale

/// How a type's rows lie in the planes of a KV block. The bits of 32 elements fill whole words, in the order of the
/// type's own block, and lie in the plane of values; what else the block has are its scales, in the plane of scales.
struct KvForm {
  bool quantised = false;  // else a float type, whose elements lie as they are
  int bits = 0;            // per element
  int group_bytes = 0;     // of scales per 32 elements: 2 (f16 scale) or 4 (f16 scale, f16 minimum)
  int row_bytes = 0;       // of scales per row: 4 (one f32 scale for all of the row) or 0

  [[nodiscard]] constexpr bool has_min() const noexcept { return group_bytes == 4; }
  /// Bytes of a row of `dim` elements in either plane.
  [[nodiscard]] constexpr std::size_t value_bytes(int dim) const noexcept {
    return static_cast<std::size_t>(dim) * static_cast<std::size_t>(bits) / 8;
  }
  [[nodiscard]] constexpr std::size_t scale_bytes(int dim) const noexcept {
    const std::size_t groups = static_cast<std::size_t>(dim) / kKvGroup;
    return groups * static_cast<std::size_t>(group_bytes) + static_cast<std::size_t>(row_bytes);
  }
};
[[nodiscard]] constexpr KvForm kv_form(int block_weights, int block_bytes, int row_header_bytes) noexcept {
  if (block_weights == 1) return {false, 8 * block_bytes, 0, 0};
  if (row_header_bytes > 0) return {true, block_bytes / 4, 0, 4};
  const int bits = (block_bytes - 1) / 4;
  return {true, bits, block_bytes - 4 * bits, 0};
}
[[nodiscard]] inline KvForm kv_form(DType type) noexcept {
  const TypeInfo& info = type_info(type);
  return kv_form(info.block_weights, info.block_bytes, info.row_header_bytes);
}
/// Whether codes choose from the table of 16 values instead of being numbers.
[[nodiscard]] constexpr bool kv_codes_choose(DType type) noexcept {
  return type == DType::iq4_nl;
}

/// How one layer's keys and values lie inside one KV block of 64 tokens: head-major and planar, so that the tile of one
/// head is one contiguous run and a range of heads is a contiguous slice.
///
///   K values [head][token][dim] | K scales [head][token][dim / 32] | V values | V scales
///
/// Each plane is 64-byte aligned. Quantised types keep their codes in the value plane and their scales in the scale
/// plane (KvForm); float types have no scale plane. The blocks of files, of 18 or 34 bytes, do not occur here.
struct KvLayout {
  DType k_type = DType::f16;
  DType v_type = DType::f16;
  int n_head_kv = 0;
  int dk = 0;  // elements per key and head
  int dv = 0;  // elements per value and head; 0 = the group has no V plane

  /// Whether heads of these sizes can be kept in these types: those that may hold KV (types.def), the quantised ones
  /// among them when dims divide by 32.
  [[nodiscard]] bool supported() const noexcept;
  [[nodiscard]] static bool fits(DType type, int dim) noexcept;
  // Where each plane starts, in bytes from the start of the block.
  [[nodiscard]] std::size_t k_values() const noexcept { return 0; }
  [[nodiscard]] std::size_t k_scales() const noexcept;
  [[nodiscard]] std::size_t v_values() const noexcept;
  [[nodiscard]] std::size_t v_scales() const noexcept;
  /// Bytes of one block of one layer.
  [[nodiscard]] std::size_t block_bytes() const noexcept;
  /// Bytes of the value plane and of the scale plane of one head in one block.
  [[nodiscard]] static std::size_t head_value_bytes(DType type, int dim) noexcept;
  [[nodiscard]] static std::size_t head_scale_bytes(DType type, int dim) noexcept;
};

/// One run of new tokens of one sequence inside a step: rows [first_row, first_row + n_rows) of the batch are the cells
/// [first_cell, first_cell + n_rows) of the sequence. A cell is a place in the sequence's cache; cells before
/// first_cell are already stored. The block of cell c is block_table[table_offset + c / 64 - first_block]; -1 marks a
/// block that was freed because no window reaches it any more. Lies in an i32 port as is.
struct AttnSpan {
  std::int32_t first_row;
  std::int32_t n_rows;
  std::int32_t first_cell;
  std::int32_t table_offset;
  std::int32_t first_block;  // index of the table's first entry, in blocks from the start of the sequence
  // Recurrent layers; -1 in attention groups. The state before the first row is read from `state_slot` (-1: zeros), the
  // one after the last row goes to `state_to` (which may be the same slot), and the one before the last row to
  // `state_before_last`, unless that is -1.
  std::int32_t state_slot;
  std::int32_t state_to;
  std::int32_t state_before_last;
};
static_assert(sizeof(AttnSpan) == 32);

}  // namespace ggml
