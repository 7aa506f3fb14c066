#pragma once

#include <optional>

#include "model/hparams.h"

/// Keys that several families read, each with its own default.
namespace llama {

class KeyReader;

/// attention.layer_norm_rms_epsilon, required.
[[nodiscard]] float read_rms_eps(KeyReader& keys);

/// expert_gating_func; empty fallback: a file that leaves it unset is a problem.
[[nodiscard]] ggml::Gating read_gating(KeyReader& keys, std::optional<ggml::Gating> fallback);

/// expert_feed_forward_length, else the dense width divided by the experts used.
[[nodiscard]] int read_expert_width(KeyReader& keys, const Hparams& hparams);

/// expert_weights_norm and expert_weights_scale.
void read_expert_weighting(KeyReader& keys, ExpertHparams& experts);

/// leading_dense_block_count: the first layers have no experts.
void read_leading_dense(KeyReader& keys, Hparams& hparams);

/// Notes a problem when the file has no experts.
void require_experts(KeyReader& keys, const Hparams& hparams);

/// Every layer but each `period`-th has a window: layer i is full iff i % period is period - 1. period 1: none has one,
/// 0: all have one.
void set_windows(Hparams& hparams, int window, int period);

/// attention.sliding_window_pattern where the family expects a period: an array of flags is ignored, since converters
/// that write one describe the same period.
[[nodiscard]] int read_window_period(KeyReader& keys, int fallback);

/// rope.dimension_sections; what text needs of them (see RopeHparams::sections).
void read_rope_sections(KeyReader& keys, Hparams& hparams);

/// ssm.* of the gated delta net, and which layers have it: full_attention_interval, or one flag per layer.
void read_delta_net(KeyReader& keys, Hparams& hparams);

/// pooling_type.
[[nodiscard]] Pooling read_pooling(KeyReader& keys);

}  // namespace llama
