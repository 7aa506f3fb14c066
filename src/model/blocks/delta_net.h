#pragma once

#include "ggml/graph.h"

namespace llama {

class LayerBuilder;

/// Gated delta net (arXiv:2412.06464) as Qwen3-Next has it: projections, a short convolution, the recurrence over a
/// state per value head, a gated norm, output projection. x [n_embd, T] -> [n_embd, T].
[[nodiscard]] ggml::TensorId delta_net(LayerBuilder& b, ggml::TensorId x);

/// Attention whose output is multiplied by the sigmoid of a gate that comes with the queries.
/// x [n_embd, T] -> [n_embd, T].
[[nodiscard]] ggml::TensorId gated_attention(LayerBuilder& b, ggml::TensorId x);

}  // namespace llama
