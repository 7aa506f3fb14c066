#pragma once

#include "op_def.h"

namespace ggml {

/// The shape rule of add and mul: each axis equal, or 1 in one of the two.
[[nodiscard]] std::vector<TensorDesc> binary_shape(const OpInputs& in);

}  // namespace ggml
