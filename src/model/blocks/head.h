#pragma once

#include "ggml/graph.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace llama {

class AdapterScales;

struct EmbeddingInputs {
  ggml::TensorId tokens;       // [T] i32
  ggml::TensorId positions;    // [T] i32; used by models that learned positions
  ggml::TensorId token_types;  // [T] i32; used by encoders
};
/// Rows [n_embd, T] of the embedding table, scaled as the family wants, with positions, types and norm where the model
/// has them.
[[nodiscard]] ggml::TensorId embedding(ggml::GraphBuilder& graph, const Hparams& hparams, const ModelWeights& weights,
                                       const EmbeddingInputs& inputs, AdapterScales& adapters);

/// The norm behind the last layer; x itself in models without one.
[[nodiscard]] ggml::TensorId final_norm(ggml::GraphBuilder& graph, const Hparams& hparams, const ModelWeights& weights,
                                        ggml::TensorId x);

/// Final norm, output matrix (the embedding table where the file ties them) with its adapters, soft cap.
/// x [n_embd, rows] -> logits [n_vocab, rows]. Named "output_norm" and "logits".
[[nodiscard]] ggml::TensorId lm_head(ggml::GraphBuilder& graph, const Hparams& hparams, const ModelWeights& weights,
                                     ggml::TensorId x, AdapterScales& adapters);

}  // namespace llama
