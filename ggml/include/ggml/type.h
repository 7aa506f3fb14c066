#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ggml {

/// The element type of a tensor. The order is that of types.def and means nothing; files use TypeInfo::gguf_number.
enum class DType : std::uint8_t {
#define QTYPE(id, num, name, weights, bytes, header, rows, trailer, kv, act) id,
#include "../../src/quant/types.def"
#undef QTYPE
};

/// The form activations are rounded to before a matrix product (spec: "activation formats").
enum class ActType : std::uint8_t { f32, f16, bf16, q8_0, q8_1, q8_k };
inline constexpr int kActTypeCount = 6;

struct TypeInfo {
  DType type;
  std::string_view id;    // lower case, as in flags and file names: "q4_k"
  std::string_view name;  // upper case, as in reports: "Q4_K"
  std::uint32_t gguf_number;
  int block_weights;         // elements per block
  int block_bytes;           // bytes per block
  int row_header_bytes;      // bytes in front of the blocks of each row
  int rows_per_group;        // > 1: this many rows are interleaved
  int tensor_trailer_bytes;  // bytes after the last row
  bool kv_capable;           // may be the type of a KV cache
  ActType act;               // what activations are rounded to in a product with this type
};

inline constexpr int kTypeCount = 0
#define QTYPE(id, num, name, weights, bytes, header, rows, trailer, kv, act) +1
#include "../../src/quant/types.def"
#undef QTYPE
    ;

[[nodiscard]] const TypeInfo& type_info(DType type) noexcept;
/// The type with this number in GGUF files; nothing when we have no row for it.
[[nodiscard]] std::optional<DType> type_from_gguf(std::uint32_t number) noexcept;
/// The type called `name`, in any case ("q4_k", "Q4_K").
[[nodiscard]] std::optional<DType> type_from_name(std::string_view name) noexcept;
/// Why GGUF number `number` cannot be read (removed, activation-only, unknown); for error messages.
[[nodiscard]] std::string_view why_gguf_type_is_refused(std::uint32_t number) noexcept;

/// Bytes of one row of `n` elements. Pre: n % block_weights == 0.
[[nodiscard]] std::size_t row_bytes(DType type, std::int64_t n) noexcept;

}  // namespace ggml
