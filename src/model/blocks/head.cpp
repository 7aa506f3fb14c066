#include "model/blocks/head.h"

#include "model/layer_builder.h"

namespace llama {

ggml::TensorId embedding(ggml::GraphBuilder& graph, const Hparams& hparams, const ModelWeights& weights,
                         ggml::TensorId tokens) {
  const ggml::EmbedParams params{.scale = hparams.embedding_scale};
  return graph.embed(tokens, make_slot(graph, weights.global[Role::token_embd]), params, "embd");
}

ggml::TensorId lm_head(ggml::GraphBuilder& graph, const Hparams& hparams, const ModelWeights& weights,
                       ggml::TensorId x) {
  const ggml::NormParams norm{.kind = ggml::NormKind::rms, .eps = hparams.norm_eps, .has_weight = true};
  const ggml::TensorId normed = graph.norm(x, make_slot(graph, weights.global[Role::output_norm]), norm, "output_norm");
  const TensorSet& global = weights.global;
  const TensorWithParts& matrix = global[Role::output] ? global[Role::output] : global[Role::token_embd];
  if (hparams.final_softcap <= 0.0f) return graph.linear(normed, make_slot(graph, matrix), "logits");
  const ggml::TensorId raw = graph.linear(normed, make_slot(graph, matrix), "logits_raw");
  const ggml::UnaryParams cap{
      .kind = ggml::UnaryKind::softcap, .act = ggml::Activation::none, .a = hparams.final_softcap};
  return graph.unary(raw, cap, "logits");
}

}  // namespace llama
