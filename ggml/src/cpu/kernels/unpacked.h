#pragma once

#include "cpu/kernels/kernels.h"

/// Products with types that have no vector decoder of their own: pieces of 256 weights are unpacked to bytes and scales
/// first (by the type's codec, or by a vector function where the ISA level has one) and multiplied then, by the same
/// loops for all of them. One function per ISA level; only the tables may touch them.
namespace ggml::cpu {

void mul_mat_unpacked_avx2(DType type, const MatmulArgs& args) noexcept;
void mul_mat_unpacked_avx512(DType type, const MatmulArgs& args) noexcept;
void mul_mat_unpacked_avx512vnni(DType type, const MatmulArgs& args) noexcept;
void mul_mat_unpacked_avx512vbmi(DType type, const MatmulArgs& args) noexcept;

/// `k` weights of one row, by the codec. No interleaved types.
void dequantise_unpacked(DType type, const std::byte* row, std::int64_t k, float* dst) noexcept;

}  // namespace ggml::cpu
