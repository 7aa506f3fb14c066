#pragma once

#include "op_def.h"

namespace ggml {

/// The shape rule of sample and pick.
[[nodiscard]] std::vector<TensorDesc> sample_shape(const OpInputs& in);

}  // namespace ggml
