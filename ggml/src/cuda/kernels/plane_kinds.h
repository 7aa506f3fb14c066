#pragma once

#include "cuda/planes.h"

/// The kinds of planes that have kernels: bits of a code, form of the scales, center.
#define GGML_CUDA_PLANE_KINDS(KIND) \
  KIND(4, half, 8)                  \
  KIND(4, half_min, 0)              \
  KIND(4, k_min, 0)                 \
  KIND(5, half, 16)                 \
  KIND(5, half_min, 0)              \
  KIND(5, k_min, 0)                 \
  KIND(6, k_16, 32)                 \
  KIND(8, half, 0)                  \
  KIND(8, wide, 0)

namespace ggml::cuda {

/// The same as numbers, for kernels that choose their decoder when they run.
enum class PlaneKind : std::uint8_t {
#define KIND(bits, form, center) bits_##bits##_##form,
  GGML_CUDA_PLANE_KINDS(KIND)
#undef KIND
};

}  // namespace ggml::cuda
