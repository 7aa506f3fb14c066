#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "ggml/device.h"
#include "ggml/gguf.h"
#include "ggml/graph.h"

namespace llama {

/// What a tensor is for; GGUF names without prefix and suffix.
enum class Role : std::uint8_t {
  token_embd,
  output_norm,
  output,
  rope_freqs,
  rope_factors_long,
  rope_factors_short,
  attn_norm,
  attn_q,
  attn_k,
  attn_v,
  attn_qkv,
  attn_output,
  attn_q_norm,
  attn_k_norm,
  post_attention_norm,
  ffn_norm,
  ffn_gate,
  ffn_up,
  ffn_down,
  post_ffw_norm,
  ffn_gate_inp,
  ffn_gate_exps,
  ffn_up_exps,
  ffn_gate_up_exps,
  ffn_down_exps,
  count,
};
inline constexpr std::size_t kRoleCount = static_cast<std::size_t>(Role::count);

/// A tensor of the file with its companions; null where the file has none.
struct TensorWithParts {
  const ggml::Weight* weight = nullptr;
  const ggml::Weight* bias = nullptr;   // [N] f32, or [N, n_expert]
  const ggml::Weight* scale = nullptr;  // [1] f32, or [n_expert]
  explicit operator bool() const { return weight != nullptr; }
};

/// The tensors of one layer, or the ones that belong to no layer.
struct TensorSet {
  std::array<TensorWithParts, kRoleCount> parts;
  [[nodiscard]] const TensorWithParts& operator[](Role role) const { return parts[static_cast<std::size_t>(role)]; }
  [[nodiscard]] TensorWithParts& operator[](Role role) { return parts[static_cast<std::size_t>(role)]; }
};

/// All weights of a model and the memory they lie in. Immutable after loading; graphs point into `tensors`.
struct ModelWeights {
  std::deque<ggml::Weight> tensors;  // a deque: addresses stay
  TensorSet global;
  std::vector<TensorSet> layers;

  std::vector<ggml::gguf::Mapping> mappings;           // load mode mmap
  std::vector<std::unique_ptr<ggml::Buffer>> buffers;  // the other modes
};

}  // namespace llama
