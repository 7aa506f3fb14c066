#pragma once

#include <span>

#include "ggml/device.h"
#include "ggml/gguf.h"
#include "llama/model.h"
#include "model/schema.h"
#include "model/weights.h"

namespace llama {

/// Brings the matched tensors into memory, by mapping or reading, and to the device where it keeps weights in its own
/// memory, and sets their placements; the one in host memory comes first.
/// Throws Error: io, out_of_memory, cancelled (progress said so), invalid_file (--check-tensors found bad values).
void load_weights(const ggml::gguf::File& file, std::span<const TensorMatch> matches, const ModelParams& params,
                  ggml::Device& device, const LoadProgress& progress, ModelWeights& weights);

}  // namespace llama
