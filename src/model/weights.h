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
  token_embd_norm,
  position_embd,
  token_types,
  attn_norm,
  attn_q,
  attn_k,
  attn_v,
  attn_qkv,
  attn_output,
  attn_q_norm,
  attn_k_norm,
  attn_gate,
  attn_sinks,
  attn_q_a,
  attn_q_a_norm,
  attn_q_b,
  attn_kv_a_mqa,
  attn_kv_a_norm,
  attn_kv_b,
  attn_k_b,
  attn_v_b,
  attn_k_up,  // derived from attn_k_b
  attn_output_norm,
  post_attention_norm,
  ffn_norm,
  ffn_gate,
  ffn_up,
  ffn_down,
  post_ffw_norm,
  layer_output_norm,
  ffn_gate_inp,
  exp_probs_b,
  ffn_gate_exps,
  ffn_up_exps,
  ffn_gate_up_exps,
  ffn_down_exps,
  ffn_gate_inp_shexp,
  ffn_gate_shexp,
  ffn_up_shexp,
  ffn_down_shexp,
  ssm_in,
  ssm_conv1d,
  ssm_dt,
  ssm_a,
  ssm_ba,
  ssm_beta,
  ssm_alpha,
  ssm_norm,
  ssm_out,
  control_vector,  // added to what the layer gives; from files of their own
  count,
};
inline constexpr std::size_t kRoleCount = static_cast<std::size_t>(Role::count);

/// A LoRA adapter's pair of matrices for one tensor (see ggml::SlotAdapter).
struct AdapterPair {
  int adapter = 0;  // index into Model::adapters()
  const ggml::Weight* a = nullptr;
  const ggml::Weight* b = nullptr;
  float factor = 1.0f;  // alpha / rank: of the scale that a request gives
};

/// A tensor of the file with its companions; null where the file has none.
struct TensorWithParts {
  const ggml::Weight* weight = nullptr;
  const ggml::Weight* bias = nullptr;   // [N] f32, or [N, n_expert]
  const ggml::Weight* scale = nullptr;  // [1] f32, or [n_expert]
  // In the order of the adapters. A head that shares the embedding's matrix has none of its own but these, for its use
  // of the matrix.
  std::vector<AdapterPair> adapters = {};
  explicit operator bool() const { return weight != nullptr; }
};

/// The tensors of one layer, or the ones that belong to no layer.
struct TensorSet {
  std::array<TensorWithParts, kRoleCount> parts;
  [[nodiscard]] const TensorWithParts& operator[](Role role) const { return parts[static_cast<std::size_t>(role)]; }
  [[nodiscard]] TensorWithParts& operator[](Role role) { return parts[static_cast<std::size_t>(role)]; }
};

/// Calls f(weight) for each companion of a tensor that there is, adapters included.
template <class F>
void for_each_companion(const TensorWithParts& parts, F&& f) {
  for (const ggml::Weight* part : {parts.bias, parts.scale})
    if (part != nullptr) f(part);
  for (const AdapterPair& pair : parts.adapters)
    for (const ggml::Weight* part : {pair.a, pair.b}) f(part);
}

/// All weights of a model and the memory they lie in. Immutable after loading; graphs point into `tensors`.
struct ModelWeights {
  std::deque<ggml::Weight> tensors;  // a deque: addresses stay
  TensorSet global;
  std::vector<TensorSet> layers;

  std::vector<ggml::gguf::Mapping> mappings;           // load mode mmap
  std::vector<std::unique_ptr<ggml::Buffer>> buffers;  // the other modes
};

}  // namespace llama
