#pragma once

#include "ggml/graph.h"

namespace llama {

class LayerBuilder;

struct DenseFfnCfg {
  ggml::Activation act = ggml::Activation::silu;
};
/// down(act(gate x) * (up x)). x [n_embd, T] -> [n_embd, T].
[[nodiscard]] ggml::TensorId dense_ffn(LayerBuilder& b, ggml::TensorId x, const DenseFfnCfg& cfg);

struct MoeCfg {
  ggml::Activation act = ggml::Activation::silu;
};
/// Mixture of experts with the router of Hparams::experts. x [n_embd, T] -> [n_embd, T].
[[nodiscard]] ggml::TensorId moe_ffn(LayerBuilder& b, ggml::TensorId x, const MoeCfg& cfg);

}  // namespace llama
