#pragma once

#include "ggml/graph.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace llama {

/// Token ids [T] i32 -> rows [n_embd, T], scaled as the family wants. Named "embd".
[[nodiscard]] ggml::TensorId embedding(ggml::GraphBuilder& graph, const Hparams& hparams, const ModelWeights& weights,
                                       ggml::TensorId tokens);

/// Final norm, output matrix (the embedding table where the file ties them), soft cap.
/// x [n_embd, rows] -> logits [n_vocab, rows]. Named "output_norm" and "logits".
[[nodiscard]] ggml::TensorId lm_head(ggml::GraphBuilder& graph, const Hparams& hparams, const ModelWeights& weights,
                                     ggml::TensorId x);

}  // namespace llama
