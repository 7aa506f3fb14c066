#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gguf_tool {

enum class QkNorm : std::uint8_t { none, head, row };  // of each head, or of the whole row of all heads

/// What an architecture fixes for all its models.
struct ArchTraits {
  std::string_view name;
  QkNorm qk_norm = QkNorm::none;
  bool late_ffn_norm = false;         // the norm before the FFN is called post_attention_norm
  bool branch_norms = false;          // each branch is normalised again before it is added
  bool qkv_bias = false;              // biases on q, k and v
  bool biases = false;                // biases elsewhere too, and attention sinks
  std::string_view expert_type = {};  // the only type in which the experts are published
};

/// Gated delta net layers between the attention layers.
struct DeltaNet {
  int conv = 4;
  int state = 128;
  int key_heads = 16;
  int value_heads = 32;
  bool fused_beta_alpha = false;  // one projection for both, as the first models of this kind have it
};

/// Multi-head latent attention with the split attn_k_b / attn_v_b layout.
struct LatentAttention {
  int q_rank = 0;  // 0: the query is projected in one step
  int kv_rank = 512;
  int nope = 128;  // values of a head without rotation
};

struct RopeScaling {
  std::string_view kind = "yarn";
  float factor = 1;
  std::optional<int> original_context = std::nullopt;
  std::optional<float> log_multiplier = std::nullopt;
};

struct ExpertGroups {
  int count = 1;
  int used = 1;
};

/// Hyper-parameters of a published model. Zero and nullopt: the model has no such thing, and its key is not written.
struct Preset {
  std::string_view name;
  std::string_view arch;
  int layers = 0;
  int embd = 0;
  int ff = 0;
  int heads = 0;
  int heads_kv = 0;
  int head_dim = 0;
  int vocab = 0;
  int context = 0;
  float rope_base = 1e4F;
  float eps = 1e-6F;
  bool tied = false;         // the output projection is the token embedding
  bool llama3_rope = false;  // carries divisors of the rotation frequencies
  int rotated = 0;           // rotated values of a head; 0: all
  int window = 0;
  int experts = 0;
  int used = 0;
  int expert_ff = 0;
  int shared = 0;                             // shared experts of width expert_ff
  std::optional<int> dense = std::nullopt;    // leading layers without experts
  int gating = 0;                             // expert_gating_func: 1 softmax, 2 sigmoid
  std::optional<float> scale = std::nullopt;  // of the expert weights
  std::optional<bool> normalise = std::nullopt;
  int mtp_layers = 0;  // next-token-prediction layers after the last one
  std::optional<ExpertGroups> groups = std::nullopt;
  std::optional<RopeScaling> scaling = std::nullopt;
  std::optional<std::array<int, 4>> sections = std::nullopt;
  std::optional<DeltaNet> delta = std::nullopt;
  std::optional<LatentAttention> mla = std::nullopt;
  int attention_interval = 4;  // with delta: every so many layers one has attention

  [[nodiscard]] const ArchTraits& traits() const;
  [[nodiscard]] int rotated_dims() const { return rotated != 0 ? rotated : head_dim; }
  [[nodiscard]] bool layer_has_experts(int layer) const { return experts > 0 && layer >= dense.value_or(0); }
  [[nodiscard]] bool layer_is_delta(int layer) const {
    return delta && layer < layers && (layer + 1) % attention_interval != 0;
  }
};

[[nodiscard]] std::span<const Preset> presets();

/// Changes of size that a user may ask for.
struct Resize {
  std::optional<int> layers;
  std::optional<int> experts;
  std::optional<int> vocab;
};

/// The preset called `name`, resized; what depends on the sizes (dense layers, experts used, attention interval)
/// follows. Throws ggml::Error(invalid_argument) for an unknown name (with the nearest) and for sizes that make no
/// model.
[[nodiscard]] Preset find_preset(std::string_view name, const Resize& resize);

}  // namespace gguf_tool
