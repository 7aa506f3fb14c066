#pragma once

#include "llama/placement.h"

namespace llama {

/// Of activations from one device to the next, one way: a launch and a wait.
inline constexpr double kCrossingSeconds = 10e-6;

/// Bytes of a tensor that a decode step reads from where it lies.
[[nodiscard]] double read_share(const PlanModel& model, const PlanTensor& tensor);

/// Cells in the cache for which steps are modelled: few enough that the weights count.
inline constexpr int kModelledDepth = 4096;

}  // namespace llama
