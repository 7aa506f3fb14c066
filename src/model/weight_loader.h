#pragma once

#include <span>

#include "ggml/device.h"
#include "ggml/gguf.h"
#include "llama/model.h"
#include "model/schema.h"
#include "model/weights.h"

namespace llama {

/// Brings the matched tensors into memory, by mapping or reading, and sets their placements.
/// Throws Error: io, out_of_memory, cancelled (progress said so), invalid_file (--check-tensors found bad values).
void load_weights(const ggml::gguf::File& file, std::span<const TensorMatch> matches, const ModelParams& params,
                  ggml::Device& device, const LoadProgress& progress, ModelWeights& weights);

/// Adds the matched tensors as weights whose one placement, in host memory, has no bytes.
void outline_weights(std::span<const TensorMatch> matches, ModelWeights& weights);

/// Copies all weights to a device that keeps them in its own memory and form, and adds placements there; the one in
/// host memory stays the first. Where the device reads them in place: nothing. Throws DeviceError, Error(cancelled).
void copy_to_device(ggml::Device& device, const LoadProgress& progress, ModelWeights& weights);

}  // namespace llama
