#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ggml/device.h"
#include "ggml/gguf.h"
#include "llama/model.h"
#include "llama/plan.h"
#include "model/hparams.h"
#include "model/merged_tensors.h"
#include "model/schema.h"
#include "model/weights.h"

namespace llama {

/// Where weights go: the devices of the plan, in its order.
struct LoadTarget {
  std::span<ggml::Device* const> devices;
  const Plan& plan;
  const Hparams& hparams;
  std::span<const MergedTensor> merged = {};  // beside the matched tensors
};

/// Brings the matched tensors into memory, by mapping or reading, and to the devices that the plan puts them on; makes
/// the derived weights; sets all placements. A placement in host memory comes first; one that the plan did not ask for
/// (the rest of a mapped file) has the role `cache`. Memory of devices is allocated before anything is read.
/// Throws Error: io, out_of_memory, cancelled (progress said so), invalid_file (--check-tensors found bad values).
void load_weights(const ggml::gguf::File& file, std::span<const TensorMatch> matches, const ModelParams& params,
                  const LoadTarget& target, const LoadProgress& progress, ModelWeights& weights);

/// Gives weights of our own making, from number `first` on, whose bytes lie in host memory, to the devices that the
/// plan puts them on.
void place_own_weights(const LoadTarget& target, std::size_t first, ModelWeights& weights);

/// Adds a line to `problems` when the weight's bytes hold a NaN or an infinite value.
void note_bad_values(const ggml::Weight& weight, const std::byte* data, std::vector<std::string>& problems);

/// Adds the matched tensors, then the merged ones, as weights whose one placement, in host memory, has no bytes.
void outline_weights(std::span<const TensorMatch> matches, std::span<const MergedTensor> merged, ModelWeights& weights);

}  // namespace llama
