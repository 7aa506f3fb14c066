#pragma once

#include <cstdint>

#include "ggml/op.h"

namespace ggml::cpu {

/// The k ids of the largest of `n` scores by falling score, ties to the lower id; NaN counts as -inf. With groups only
/// the best groups take part; `masked` [n + n_groups] is then workspace. `best` [k] f32 is workspace.
struct TopKArgs {
  const float* scores = nullptr;
  std::int64_t n = 0;
  float* masked = nullptr;
  float* best = nullptr;
  std::int32_t* ids = nullptr;
};
void top_k(const TopKParams& params, const TopKArgs& args) noexcept;

/// Weights of the chosen experts: dst[i] = x[ids[i]], then softmax, normalise and scale as asked; an id outside [0, n)
/// counts as 0.
void gather_weights(const GatherParams& params, const float* x, std::int64_t n, const std::int32_t* ids, std::int64_t k,
                    float* dst) noexcept;

}  // namespace ggml::cpu
