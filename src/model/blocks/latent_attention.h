#pragma once

#include "ggml/graph.h"

namespace llama {

class LayerBuilder;

/// Multi-head latent attention (arXiv:2405.04434, 2.1): a latent per token from which keys and values of all heads
/// follow, beside one rotated key that they share. The cache holds latents, or expanded keys and values where
/// LayerInputs says so. x [n_embd, T] -> [n_embd, T].
[[nodiscard]] ggml::TensorId latent_attention(LayerBuilder& b, ggml::TensorId x);

}  // namespace llama
