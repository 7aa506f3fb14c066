#pragma once

#include <vector>

#include "llama/model.h"
#include "model/hparams.h"

namespace llama {

/// What is added to the output of each layer: [n_embd] values, or none. Index = layer.
using ControlDirections = std::vector<std::vector<float>>;

/// Reads the model's control vectors and sums them, each times its scale. Tensor direction.N of a file is for layer N;
/// layer 0 has none. Throws Error: invalid_file with every problem of a file, invalid_argument (range of layers), io,
/// not_found.
[[nodiscard]] ControlDirections read_control_vectors(const ModelParams& params, const Hparams& hparams);

}  // namespace llama
