#pragma once

#include "cpu/kernels/kernels.h"

/// Products with one to four activation rows straight from the blocks, for types that are unpacked for larger ones
/// (unpacked.h). One unit of x86-64-v3 serves all vector levels: 256 bits wide code is what these decoders are made of,
/// and one unit is a quarter of the time to compile. Only the units of unpacked types may call it.
namespace ggml::cpu {

inline constexpr std::int64_t kNarrowRows = 4;

/// Multiplies up to kNarrowRows activation rows with a matrix of type `type`; null where the type has no such function.
[[nodiscard]] MatmulFn narrow_function(DType type) noexcept;

}  // namespace ggml::cpu
