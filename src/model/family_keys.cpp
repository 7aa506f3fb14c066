#include "model/family_keys.h"

#include <algorithm>

#include "ggml/log.h"
#include "model/key_reader.h"

namespace llama {

using ggml::Gating;
using ggml::strf;

namespace {

constexpr IntRange kInnerWidth{1, 1 << 20};

}  // namespace

float read_rms_eps(KeyReader& keys) {
  return keys.real("attention.layer_norm_rms_epsilon", {0.0, 1.0}, std::nullopt);
}

Gating read_gating(KeyReader& keys, std::optional<Gating> fallback) {
  constexpr Gating kByNumber[] = {Gating::softmax, Gating::sigmoid, Gating::softmax_selected, Gating::sqrt_softplus};
  const int number = keys.integer("expert_gating_func", {0, 4}, 0);
  if (number > 0) return kByNumber[number - 1];
  if (!fallback)
    keys.problem(
        strf("%s: 1 (softmax), 2 (sigmoid), 3 (softmax of the chosen) or 4 (square root of softplus) expected, "
             "file leaves it unset",
             keys.full_name("expert_gating_func").c_str()));
  return fallback.value_or(Gating::softmax);
}

int read_expert_width(KeyReader& keys, const Hparams& hparams) {
  const int dense_share = hparams.layers.front().n_ff / std::max(hparams.experts.used, 1);
  return keys.integer("expert_feed_forward_length", kInnerWidth,
                      dense_share > 0 ? std::optional(dense_share) : std::nullopt);
}

void read_expert_weighting(KeyReader& keys, ExpertHparams& experts) {
  experts.normalise = keys.flag("expert_weights_norm", false);
  experts.scale = keys.real("expert_weights_scale", {0.0, 1e6}, 0.0f);
}

void read_leading_dense(KeyReader& keys, Hparams& hparams) {
  const int n_dense = keys.integer("leading_dense_block_count", {0, hparams.n_layer_all}, 0);
  for (int i = 0; i < std::min(n_dense, hparams.n_layer); ++i) hparams.layers[static_cast<std::size_t>(i)].moe = false;
}

void require_experts(KeyReader& keys, const Hparams& hparams) {
  if (!hparams.has_experts()) keys.problem(keys.full_name("expert_count") + ": at least 1 expected, file has none");
}

void set_windows(Hparams& hparams, int window, int period) {
  if (window == 0 || period == 1) return;
  for (int i = 0; i < hparams.n_layer; ++i) {
    if (period > 0 && i % period == period - 1) continue;
    LayerHparams& layer = hparams.layers[static_cast<std::size_t>(i)];
    layer.window_kind = ggml::WindowKind::standard;
    layer.window = window;
  }
}

int read_window_period(KeyReader& keys, int fallback) {
  if (keys.is_array("attention.sliding_window_pattern")) return fallback;
  return keys.integer("attention.sliding_window_pattern", {0, 512}, fallback);
}

void read_rope_sections(KeyReader& keys, Hparams& hparams) {
  hparams.rope.sections = keys.list("rope.dimension_sections", 4, {0, 1 << 14});
  const bool all_zero =
      std::all_of(hparams.rope.sections.begin(), hparams.rope.sections.end(), [](int n) { return n == 0; });
  if (all_zero) hparams.rope.sections.clear();
}

void read_delta_net(KeyReader& keys, Hparams& hparams) {
  DeltaNetHparams& net = hparams.delta_net;
  net.conv_kernel = keys.integer("ssm.conv_kernel", {2, 64}, std::nullopt);
  net.head_dim = keys.integer("ssm.state_size", {1, 4096}, std::nullopt);
  net.n_head_v = keys.integer("ssm.time_step_rank", {1, 4096}, std::nullopt);
  net.n_head_k = keys.integer("ssm.group_count", {1, 4096}, std::nullopt);
  const int inner = keys.integer("ssm.inner_size", kInnerWidth, std::nullopt);
  if (inner != net.inner())
    keys.problem(strf("%s: ssm.state_size * ssm.time_step_rank (%d) expected, file has %d",
                      keys.full_name("ssm.inner_size").c_str(), net.inner(), inner));
  if (net.n_head_v % net.n_head_k != 0)
    keys.problem(strf("%s: a divisor of ssm.time_step_rank (%d) expected, file has %d",
                      keys.full_name("ssm.group_count").c_str(), net.n_head_v, net.n_head_k));
  const int interval = keys.integer("full_attention_interval", {1, 512}, 4);
  std::vector<int> recurrent;
  recurrent.reserve(static_cast<std::size_t>(hparams.n_layer_all));
  for (int i = 0; i < hparams.n_layer_all; ++i) recurrent.push_back((i + 1) % interval != 0 ? 1 : 0);
  recurrent = keys.per_layer("attention.recurrent_layers", hparams.n_layer_all, {0, 1}, recurrent);
  for (std::size_t i = 0; i < hparams.layers.size(); ++i) hparams.layers[i].recurrent = recurrent[i] != 0;
}

Pooling read_pooling(KeyReader& keys) {
  constexpr Pooling kByNumber[] = {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last, Pooling::rank};
  return kByNumber[keys.integer("pooling_type", {0, 4}, 0)];
}

}  // namespace llama
