#include "model/blocks/head.h"

#include "model/adapter_scales.h"

namespace llama {

ggml::TensorId embedding(ggml::GraphBuilder& graph, const Hparams& hparams, const ModelWeights& weights,
                         const EmbeddingInputs& inputs, AdapterScales& adapters) {
  const TensorSet& global = weights.global;
  const auto rows = [&](Role table, ggml::TensorId ids, float scale, const char* name) {
    return graph.embed(ids, make_slot(graph, global[table], adapters), {.scale = scale}, name);
  };
  ggml::TensorId x = rows(Role::token_embd, inputs.tokens, hparams.embedding_scale, "embd");
  if (global[Role::token_types])
    x = graph.add(x, rows(Role::token_types, inputs.token_types, 1.0f, "type_embd"), "embd_typed");
  if (global[Role::position_embd])
    x = graph.add(x, rows(Role::position_embd, inputs.positions, 1.0f, "position_embd"), "embd_placed");
  if (!global[Role::token_embd_norm]) return x;
  const ggml::NormParams norm{.kind = hparams.norm_kind, .eps = hparams.norm_eps, .has_weight = true};
  return graph.norm(x, make_slot(graph, global[Role::token_embd_norm]), norm, "embd_norm");
}

ggml::TensorId final_norm(ggml::GraphBuilder& graph, const Hparams& hparams, const ModelWeights& weights,
                          ggml::TensorId x) {
  if (!weights.global[Role::output_norm]) return x;
  const ggml::NormParams norm{.kind = hparams.norm_kind, .eps = hparams.norm_eps, .has_weight = true};
  return graph.norm(x, make_slot(graph, weights.global[Role::output_norm]), norm, "output_norm");
}

ggml::TensorId lm_head(ggml::GraphBuilder& graph, const Hparams& hparams, const ModelWeights& weights, ggml::TensorId x,
                       AdapterScales& adapters) {
  const ggml::TensorId normed = final_norm(graph, hparams, weights, x);
  const TensorSet& global = weights.global;
  TensorWithParts matrix = global[Role::output] ? global[Role::output] : global[Role::token_embd];
  matrix.adapters = global[Role::output].adapters;  // those of a shared matrix are for looking up its rows
  const ggml::Slot slot = make_slot(graph, matrix, adapters);
  if (hparams.final_softcap <= 0.0f) return graph.linear(normed, slot, "logits");
  const ggml::TensorId raw = graph.linear(normed, slot, "logits_raw");
  const ggml::UnaryParams cap{
      .kind = ggml::UnaryKind::softcap, .act = ggml::Activation::none, .a = hparams.final_softcap};
  return graph.unary(raw, cap, "logits");
}

}  // namespace llama
