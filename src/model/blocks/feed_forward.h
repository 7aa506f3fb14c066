#pragma once

#include "ggml/graph.h"

namespace llama {

class LayerBuilder;

struct DenseFfnCfg {
  ggml::Activation act = ggml::Activation::silu;
  bool gated = true;   // false: down(act(up x))
  bool fused = false;  // ffn_up holds gate and up, the gate's rows first
};
/// down(act(gate x) * (up x)). x [n_embd, T] -> [n_embd, T].
[[nodiscard]] ggml::TensorId dense_ffn(LayerBuilder& b, ggml::TensorId x, const DenseFfnCfg& cfg);

struct MoeCfg {
  ggml::Activation act = ggml::Activation::silu;
};
/// Mixture of experts with the router of Hparams::experts, a bias on the choice where the layer has one.
/// x [n_embd, T] -> [n_embd, T].
[[nodiscard]] ggml::TensorId moe_ffn(LayerBuilder& b, ggml::TensorId x, const MoeCfg& cfg);

/// The experts that every token uses, times sigmoid(gate . x) where the layer has such a gate.
/// x [n_embd, T] -> [n_embd, T].
[[nodiscard]] ggml::TensorId shared_expert(LayerBuilder& b, ggml::TensorId x);

}  // namespace llama
