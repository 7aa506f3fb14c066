#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "decode/ports.h"
#include "ggml/graph.h"
#include "kv/kv_cache.h"
#include "llama/context.h"
#include "model/family.h"
#include "model/layer_builder.h"
#include "model/rope.h"

namespace llama {

/// A set of a model's LoRA adapters, one bit each.
using AdapterSet = std::uint64_t;
static_assert(kMaxAdapters <= 64);

/// Names one compiled form of a segment.
struct SegmentKey {
  int segment = 0;          // 0: input; then runs of layers; last: head, or embeddings where those are wanted
  int token_bucket = 0;     // capacity of tokens; 0 for the head, which takes rows by number
  int output_bucket = 0;    // capacity of outputs; 0 where the segment has none
  bool sample = false;      // head: with the sample op
  int ports = 0;            // the set of ports that it is bound to
  AdapterSet adapters = 0;  // that it applies; what no row uses costs nothing
  bool by_layer = false;    // runs are single layers, and the stream lies between them
  int offload = 0;          // level of op offload: which weights are sent
  bool whole = true;        // all experts are sent
  bool keeps_ffn = false;   // the last layer's feed-forward runs where its weights are

  bool operator==(const SegmentKey&) const = default;
};

struct SegmentKeyHash {
  std::size_t operator()(const SegmentKey& key) const noexcept {
    const std::uint64_t numbers = static_cast<std::uint64_t>(key.ports) << 62 |
                                  static_cast<std::uint64_t>(key.segment) << 48 |
                                  static_cast<std::uint64_t>(key.token_bucket) << 25 |
                                  static_cast<std::uint64_t>(key.output_bucket) << 1 | (key.sample ? 1u : 0u);
    const std::uint64_t form = static_cast<std::uint64_t>(key.offload) << 3 | (key.keeps_ffn ? 4u : 0u) |
                               (key.by_layer ? 2u : 0u) | (key.whole ? 1u : 0u);
    return std::hash<std::uint64_t>{}(numbers ^ key.adapters * 0x9E3779B97F4A7C15u ^ form * 0xD6E8FEB86659FD93u);
  }
};

/// The smallest capacity (1 2 4 8 ... up to `max`) that holds n.
[[nodiscard]] int bucket_for(int n, int max) noexcept;

/// How one layer's keys and values are kept.
[[nodiscard]] ggml::KvLayout kv_layout(const Hparams& hparams, const LayerHparams& layer, const ContextParams& params);

/// Runs of layers that a model is cut into; each is one segment.
[[nodiscard]] int n_layer_runs(const Hparams& hparams) noexcept;
/// The first layer of a run.
[[nodiscard]] int first_layer(int run) noexcept;

/// The recurrent layers of a model; none in most. `devices`: where each layer keeps its states or cells, by index;
/// empty: on the first device.
[[nodiscard]] std::optional<StateSpec> plan_states(const Hparams& hparams, const ContextParams& params,
                                                   std::span<const ggml::DeviceId> devices = {});

/// From how many rows of a span on latent attention takes the expanded form; 0: never.
[[nodiscard]] int mla_expand_from(const Hparams& hparams, const LayerHparams& layer, const ContextParams& params);

/// The groups that the layers of a model form, with pools for `params` (resolved). Layers of one group are on one
/// device.
[[nodiscard]] std::vector<KvGroupSpec> plan_kv_groups(const Hparams& hparams, const ContextParams& params,
                                                      std::span<const ggml::DeviceId> devices = {});

/// Cuts a model into segments and builds the step graph of each. Immutable; borrows model, cache and ports.
class SegmentBuilder {
 public:
  SegmentBuilder(const Model& model, const ContextParams& params, const KvCache& cache, const StepPorts& ports);

  /// In runs of layers, or layer by layer.
  [[nodiscard]] int n_segments(bool by_layer = false) const { return last_run(by_layer) + 2; }
  [[nodiscard]] int head(bool by_layer = false) const { return last_run(by_layer) + 1; }
  [[nodiscard]] int last_run(bool by_layer = false) const {
    return by_layer ? static_cast<int>(group_of_layer_.size()) : n_runs_;
  }
  /// `key.adapters` is a part of adapters_in(key.segment, key.by_layer).
  [[nodiscard]] ggml::Graph build(const SegmentKey& key) const;
  /// The adapters that change a tensor of the segment.
  [[nodiscard]] AdapterSet adapters_in(int segment, bool by_layer = false) const {
    return (by_layer ? adapters_by_layer_ : adapters_in_)[static_cast<std::size_t>(segment)];
  }

  /// How the keys of each layer are rotated; index = LayerId.
  [[nodiscard]] std::span<const KvCache::LayerRope> ropes() const { return ropes_; }

 private:
  [[nodiscard]] ggml::Graph build_input(const SegmentKey& key) const;
  [[nodiscard]] ggml::Graph build_run(const SegmentKey& key) const;
  [[nodiscard]] ggml::Graph build_head(const SegmentKey& key) const;
  [[nodiscard]] ggml::Graph build_embeddings(const SegmentKey& key) const;
  [[nodiscard]] ggml::PortId last_stream(const SegmentKey& key) const;
  [[nodiscard]] LayerInputs layer_inputs(int layer) const;
  void observe_all(ggml::Graph& graph) const;
  void note_adapters();

  const Model& model_;
  const Family& family_;
  const ContextParams& params_;
  const KvCache& cache_;
  const StepPorts& ports_;
  int n_runs_;
  const ggml::Weight* rope_factors_;
  std::vector<KvCache::LayerRope> ropes_;
  std::vector<GroupId> group_of_layer_;
  std::vector<AdapterSet> adapters_in_, adapters_by_layer_;  // per segment
};

}  // namespace llama
