#pragma once

#include <string>
#include <vector>

#include "ggml/gguf.h"
#include "llama/model.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace llama {

/// A pair of a LoRA file, matched to the tensor of the model that it changes.
struct AdapterTensor {
  const ggml::gguf::TensorInfo* a = nullptr;
  const ggml::gguf::TensorInfo* b = nullptr;
  int layer = -1;  // -1: global
  Role role = Role::count;
  float factor = 1.0f;  // alpha / rank
};

/// The checked headers of a LoRA file.
struct AdapterFile {
  ggml::gguf::File file;
  AdapterInfo info;
  std::vector<AdapterTensor> tensors;  // in the order of the file; they point into `file`
};

/// Reads `path` and holds it against the model. A pair fits a matrix W [K, N(, experts)] when lora_a is [K, r(,
/// experts)] and lora_b [r, N(, experts)]; for the embedding of tokens, whose rows are looked up, lora_a is [r, N] and
/// lora_b [r, K]. Throws Error: invalid_file with every problem, io, not_found.
[[nodiscard]] AdapterFile open_adapter(const std::string& path, const Hparams& hparams, const ModelWeights& weights);

}  // namespace llama
