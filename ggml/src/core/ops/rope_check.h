#pragma once

#include "op_def.h"

namespace ggml {

/// The shape rule of rope and rotate: positions [T], factors [n_rot / 2] when has_factors, then the tensors.
/// Returns one result per tensor.
[[nodiscard]] std::vector<TensorDesc> rope_shape(const OpInputs& in, std::size_t max_tensors);

}  // namespace ggml
