#pragma once

#include <cstdint>

/// Matrix shapes of real models: what the micro-benchmarks run, so that a figure says something about a model.
namespace tandem::bench {

struct MatShape {
  const char* name;  // model and tensor
  std::int64_t n;    // rows of weights
  std::int64_t k;    // their length
};

inline constexpr MatShape kShapes[] = {
    {"llama3-8b/ffn_gate", 14336, 4096},       {"llama3-8b/ffn_down", 4096, 14336},
    {"llama3-8b/attn_k", 1024, 4096},          {"qwen3-30b-a3b/ffn_gate_exp", 768, 2048},
    {"qwen3-30b-a3b/ffn_down_exp", 2048, 768}, {"smollm2-135m/ffn_gate", 1536, 576},
};

}  // namespace tandem::bench
