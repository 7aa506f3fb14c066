#pragma once

#include <span>

#include "cuda/bound_op.h"
#include "cuda/kernels/activations.h"

namespace ggml::cuda {

/// The angles of a rotation; what it rotates is the caller's to fill in. src: positions, then factors if there are any.
[[nodiscard]] RotateArgs rotation(const BindContext& context, const RopeParams& params, std::span<const TensorId> src);

}  // namespace ggml::cuda
