#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ggml/type.h"

namespace ggml {

/// f16 and bf16 conversions, rounding to nearest even; NaN stays NaN. Half denormals are kept.
[[nodiscard]] std::uint16_t f32_to_f16(float value) noexcept;
[[nodiscard]] float f16_to_f32(std::uint16_t bits) noexcept;
[[nodiscard]] std::uint16_t f32_to_bf16(float value) noexcept;
[[nodiscard]] float bf16_to_f32(std::uint16_t bits) noexcept;

/// Whether dequantise_row() and quantise_row() know the type (i32, for instance, is no weight).
[[nodiscard]] bool is_weight_type(DType type) noexcept;

/// The plain reference: decodes one row of `k` weights with the spec's formulas, one rounding per operation.
/// Pre: is_weight_type(type), no interleaved type, k % block_weights == 0, row holds row_bytes(type, k), dst holds k.
void dequantise_row(DType type, const std::byte* row, std::int64_t k, float* dst) noexcept;
/// Row `row` of a matrix of any type, interleaved ones included; `matrix` is where its first row (or group) starts.
void dequantise_row_of(DType type, const std::byte* matrix, std::int64_t row, std::int64_t k, float* dst) noexcept;

/// Encodes one row of `k` floats into row_bytes(type, k) bytes at `dst`.
///
/// importance [k]  f32 or empty: how much the square error of each column counts (an importance matrix' row). Without
///                 it the simple types are exact (spec, 7.1) and the others search (7.2). Types whose encoding is a
///                 formula ignore it.
/// Deterministic; not fast (use the CPU kernels' tables for KV rows). Pre: as dequantise_row().
void quantise_row(DType type, std::span<const float> src, std::span<const float> importance, std::byte* dst) noexcept;
/// The same for [k, n] floats of any type. Pre: n is a multiple of the rows of a group.
void quantise_rows(DType type, std::span<const float> src, std::int64_t k, std::span<const float> importance,
                   std::byte* dst) noexcept;

/// The type that has the weights of `type`, value for value, in rows that lie together in groups; nothing where there
/// is none of the same size.
[[nodiscard]] std::optional<DType> interleaved_form(DType type) noexcept;
/// Rewrites `rows` rows of `k` weights of the plain form of `to` at `src` to groups of `to` at `dst`.
/// Pre: `to` is an interleaved_form(), rows is a multiple of its rows of a group, the bytes do not overlap.
void interleave_rows(DType to, const std::byte* src, std::int64_t rows, std::int64_t k, std::byte* dst) noexcept;

/// Where the data of a row (for interleaved types: of a group of rows) is not sane: the index of the first block that
/// holds a NaN or infinite scale (or value, for float types); nothing when there is none. What --check-tensors asks.
[[nodiscard]] std::optional<std::int64_t> find_bad_block(DType type, const std::byte* row, std::int64_t k) noexcept;

}  // namespace ggml
