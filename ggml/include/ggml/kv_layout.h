#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml/type.h"

namespace ggml {

inline constexpr int kKvBlockTokens = 64;

/// How one layer's keys and values lie inside one KV block of 64 tokens: head-major and planar, so that the tile of one
/// head is one contiguous run and a range of heads is a contiguous slice.
///
///   K values [head][token][dim] | K scales [head][token][dim / 32] f16 | V values | V scales
///
/// Each plane is 64-byte aligned. Quantised types keep their quants in the value plane (q8_0: one int8 per element) and
/// one f16 scale per 32 elements in the scale plane; float types have no scale plane. The 34-byte blocks of files do
/// not occur here.
struct KvLayout {
  DType k_type = DType::f16;
  DType v_type = DType::f16;
  int n_head_kv = 0;
  int dk = 0;  // elements per key and head
  int dv = 0;  // elements per value and head; 0 = the group has no V plane

  /// Whether heads of these sizes can be kept in these types: F32, F16, BF16, and Q8_0 when dims divide by 32.
  [[nodiscard]] bool supported() const noexcept;
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
