#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ggml/op.h"
#include "llama/types.h"

namespace llama {

enum class RopeScaling : std::uint8_t { none, linear, yarn, longrope };

/// Position embedding as the file describes it, before options of the command line (see rope.h).
struct RopeHparams {
  ggml::RopeLayout layout = ggml::RopeLayout::norm;
  float base = 10000.0f;
  float base_swa = 10000.0f;  // windowed layers
  RopeScaling scaling = RopeScaling::linear;
  float factor = 1.0f;                // context extension; the frequency scale is its inverse
  bool scale_windowed_layers = true;  // false: windowed layers keep frequency scale 1
  int n_ctx_orig = 0;
  float attn_factor = 1.0f;
  float yarn_log_multiplier = 0.0f;
  bool equal_magnitudes = false;  // DeepSeek: the numerator of the magnitude uses the multiplier too
  bool scale_scores = false;      // DeepSeek: YaRN scales the scores by the square of the multiplier's magnitude
  std::vector<int> sections;      // M-RoPE: pairs that turn with time, height, width, extra; empty: plain
  bool interleaved_sections = false;
};

/// What may differ from layer to layer.
struct LayerHparams {
  int n_head = 0;
  int n_head_kv = 0;
  int dk = 0;     // elements of a key (and query) head
  int dv = 0;     // elements of a value head
  int n_rot = 0;  // elements of a head that are rotated
  int n_ff = 0;   // width of the dense feed-forward
  ggml::WindowKind window_kind = ggml::WindowKind::none;
  int window = 0;
  bool moe = false;        // experts instead of a dense feed-forward
  bool recurrent = false;  // gated delta net instead of attention
};

/// Latent attention (arXiv:2405.04434, 2.1); kv_rank 0: the model has none.
struct MlaHparams {
  int q_rank = 0;  // 0: queries are projected directly
  int kv_rank = 0;
};

/// Gated delta net (arXiv:2412.06464); head_dim 0: the model has none.
struct DeltaNetHparams {
  int conv_kernel = 0;
  int head_dim = 0;  // of keys and of values
  int n_head_k = 0;
  int n_head_v = 0;
  bool tiled = false;  // value head h uses key head h mod n_head_k, else h / (n_head_v / n_head_k)
  [[nodiscard]] int inner() const { return head_dim * n_head_v; }
  [[nodiscard]] int conv_channels() const { return 2 * head_dim * n_head_k + inner(); }
  /// What a layer keeps of a sequence: the last rows of the convolution's input, then a matrix per value head.
  [[nodiscard]] std::int64_t conv_state_floats() const { return std::int64_t{conv_kernel - 1} * conv_channels(); }
  [[nodiscard]] std::int64_t state_floats() const { return conv_state_floats() + std::int64_t{head_dim} * inner(); }
};

struct ExpertHparams {
  int count = 0;
  int used = 0;
  int n_ff = 0;         // width of one expert
  int n_ff_shared = 0;  // width of all shared experts together
  int n_groups = 1;
  int n_groups_used = 1;
  ggml::Gating gating = ggml::Gating::softmax;
  bool normalise = false;
  float scale = 1.0f;
};

/// The hyper-parameters of one model, checked: every count is positive and small enough for an int, heads divide, and
/// `layers` has one entry for each layer of the trunk.
struct Hparams {
  std::string arch;
  int n_vocab = 0;
  int n_ctx_train = 0;
  int n_embd = 0;
  int n_layer = 0;      // trunk
  int n_layer_all = 0;  // with next-token-prediction blocks, which are not evaluated
  ggml::NormKind norm_kind = ggml::NormKind::rms;
  float norm_eps = 1e-5f;
  float embedding_scale = 1.0f;
  float attention_scale = 0.0f;    // 0: 1 / sqrt(dk)
  float attention_softcap = 0.0f;  // 0: off
  float final_softcap = 0.0f;      // 0: off
  bool causal = true;              // false: tokens see those behind them too
  bool is_encoder = false;         // gives embeddings only, of whole sequences, and keeps no cache
  int n_token_types = 0;           // encoders
  Pooling pooling = Pooling::none;
  RopeHparams rope;
  ExpertHparams experts;
  MlaHparams mla;
  DeltaNetHparams delta_net;
  std::vector<LayerHparams> layers;

  [[nodiscard]] bool has_experts() const { return experts.count > 0; }
  [[nodiscard]] bool has_latent_attention() const { return mla.kv_rank > 0; }
  [[nodiscard]] bool has_recurrent_layers() const { return delta_net.head_dim > 0; }
};

class KeyReader;

/// Reads the keys that all families share (spec: generic keys) into `hparams`; problems are collected in the reader.
/// `n_vocab` is the length of the token list, 0 when the file has none.
void read_generic_hparams(KeyReader& keys, int n_vocab, Hparams& hparams);

}  // namespace llama
