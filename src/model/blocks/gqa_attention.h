#pragma once

#include <cstdint>

#include "ggml/graph.h"

namespace llama {

class LayerBuilder;

enum class QkNorm : std::uint8_t { none, per_head, full_row };

struct GqaAttentionCfg {
  QkNorm qk_norm = QkNorm::none;
};

/// Grouped-query attention: projections (separate or fused), optional norms of q and k, rotary embedding, attention
/// over the cache (with the layer's window, the model's soft cap, and sinks where the layer has them), output
/// projection. x [n_embd, T] -> [n_embd, T].
[[nodiscard]] ggml::TensorId gqa_attention(LayerBuilder& b, ggml::TensorId x, const GqaAttentionCfg& cfg);

/// The same from queries, keys and values on, without the output projection: [dk, n_head, T] ... -> [n_head * dv, T].
[[nodiscard]] ggml::TensorId attend(LayerBuilder& b, ggml::GraphBuilder::Qkv qkv);

}  // namespace llama
