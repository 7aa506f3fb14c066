#pragma once

#include "ggml/graph.h"

namespace llama {

class LayerBuilder;

enum class QkNorm : bool { none, per_head };

struct GqaAttentionCfg {
  QkNorm qk_norm = QkNorm::none;
};

/// Grouped-query attention: projections (separate or fused), optional norms of q and k, rotary embedding, attention
/// over the cache, output projection. x [n_embd, T] -> [n_embd, T].
[[nodiscard]] ggml::TensorId gqa_attention(LayerBuilder& b, ggml::TensorId x, const GqaAttentionCfg& cfg);

}  // namespace llama
