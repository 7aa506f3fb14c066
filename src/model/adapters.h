#pragma once

#include <vector>

#include "llama/model.h"
#include "model/weight_loader.h"
#include "model/weights.h"

namespace llama {

/// What files beside the model's own add to it: LoRA adapters, whose pairs go beside the tensors that they change, and
/// control vectors, which become one weight per layer. All of it lies where its tensor or layer is. Pre: the model's
/// own weights are there. Throws Error: those of open_adapter() and read_control_vectors(); invalid_argument for more
/// than kMaxAdapters adapters; invalid_file for values that are no numbers, with which one request's adapter could
/// spoil the rows of others.
[[nodiscard]] std::vector<AdapterInfo> load_additions(const ModelParams& params, const LoadTarget& target,
                                                      ModelWeights& weights);

/// The same weights by name, type and shape only, for an outline of the model: their placement has no bytes.
[[nodiscard]] std::vector<AdapterInfo> outline_additions(const ModelParams& params, const Hparams& hparams,
                                                         ModelWeights& weights);

}  // namespace llama
