#pragma once

#include <cstddef>

#include "ggml/kv_layout.h"

/// Rows of keys and values in the planar form of a KV block (kv_layout.h), in plain code: what the kernels of every ISA
/// level store bit for bit, and what works where there are no kernels. No function allocates.
namespace ggml {

/// Rounds one row of `dim` floats in a single pass (no search) and writes it to the planes. Pre: KvLayout::fits().
///
/// With the largest value of a group's 32 in magnitude at `extreme` (of equal ones the positive) and B bits:
///   8 bits          d = |extreme| / 127, code = round(x / d); in Q8_KV one d for the row, as f32
///   no minimum      d = extreme / -2^(B-1), code = round(x / d) in [-2^(B-1), 2^(B-1) - 1]
///   with minimum m  m = min(x), d = (max(x) - m) / (2^B - 1), code = round((x - m) / d)
///   table           t = round(x / d) with d = extreme / -127, the code of the value nearest to t, and then the d that
///                   fits values to t best
/// Ties go to even; scales and minima are stored as f16.
void encode_kv_row(DType type, const float* src, int dim, std::byte* values, std::byte* scales) noexcept;

/// Elements [first, first + n) of a row; both are multiples of 32 for quantised types.
void decode_kv_row(DType type, const std::byte* values, const std::byte* scales, int first, int n, float* dst) noexcept;

}  // namespace ggml
