#pragma once

#include "cuda/kernels/weights.h"

namespace ggml::cuda {

/// A row that a kernel normalises for itself: x / sqrt(mean of squares + eps) * weight.
struct RowNorm {
  const float* x = nullptr;  // null: nothing to normalise
  const float* weight = nullptr;
  int n = 0;
  float eps = 0.0f;
};
inline constexpr int kMostNormedValues = 4096;  // n may not be larger; it is a multiple of 32

inline constexpr int kMostStagedValues = 4096;  // eight rows of the widest type fit into a block of any card

/// Whether all planes of a matrix (or the part of one that is used) can be copied eight rows at a time.
[[nodiscard]] constexpr bool can_stage(const PlanarWeight& w) {
  constexpr int kRows = 8;
  return w.k <= kMostStagedValues && w.n % kRows == 0 && w.first % kRows == 0 && w.rows_per_matrix % kRows == 0;
}

}  // namespace ggml::cuda
