#include "decode/segments.h"

#include <algorithm>

#include "ggml/error.h"
#include "ggml/fusion.h"
#include "model/adapter_scales.h"
#include "model/blocks/head.h"
#include "model/layer_builder.h"

namespace llama {

using ggml::DType;
using ggml::Graph;
using ggml::GraphBuilder;
using ggml::Rows;
using ggml::Shape;
using ggml::TensorId;

namespace {

// A stop token is looked at between segments, and a decode step may slip in there. A card begins with the first run
// while the others are handed to it, which takes the longer the more layers they have; each costs some microseconds.
constexpr int kLayersOfFirstRun = 8, kLayersPerRun = 24;

int blocks_of(int cells) {
  return (cells + ggml::kKvBlockTokens - 1) / ggml::kKvBlockTokens;
}

int blocks_of_full_group(const ContextParams& params) {
  const int share = (params.n_ctx + params.n_seq_max - 1) / params.n_seq_max;
  return std::max(blocks_of(params.n_ctx), params.n_seq_max * blocks_of(share));
}

/// Window and margin of every sequence, a partly used block at both ends, and the tokens of one step, since nothing is
/// freed before the step has succeeded.
int blocks_of_window_group(const ContextParams& params, int window) {
  const std::int64_t kept = std::int64_t{window} + kWindowMarginCells;
  const std::int64_t per_sequence = kept / ggml::kKvBlockTokens + 3;
  const std::int64_t wanted = params.n_seq_max * per_sequence + blocks_of(params.n_batch);
  return static_cast<int>(std::min<std::int64_t>(wanted, blocks_of_full_group(params)));
}

RopeOverrides rope_overrides(const ContextParams& params) {
  return {params.rope_freq_base, params.rope_freq_scale, params.yarn_ext_factor, params.yarn_attn_factor,
          params.yarn_beta_fast, params.yarn_beta_slow,  params.yarn_orig_ctx,   params.rope_scaling};
}

bool same_group(const KvGroupSpec& a, const KvGroupSpec& b) {
  return a.kind == b.kind && a.window == b.window && a.layout.n_head_kv == b.layout.n_head_kv &&
         a.layout.dk == b.layout.dk && a.layout.dv == b.layout.dv && a.device == b.device;
}

ggml::DeviceId device_at(std::span<const ggml::DeviceId> devices, int layer) {
  return devices.empty() ? ggml::DeviceId(0) : devices[static_cast<std::size_t>(layer)];
}

constexpr std::int64_t words(std::size_t bytes) {
  return static_cast<std::int64_t>(bytes / sizeof(std::int32_t));
}

AdapterSet adapters_of(const TensorWithParts& parts) {
  AdapterSet set = 0;
  for (const AdapterPair& pair : parts.adapters) set |= AdapterSet{1} << pair.adapter;
  return set;
}

/// The ports of the adapters in `set`; `port_of` gives their numbers, `shape` is that of their factors.
struct ScalePorts {
  AdapterSet set;
  ggml::PortId (*port_of)(int adapter);
  Shape shape;
  Rows rows;
};
AdapterScales adapter_scales(GraphBuilder& b, const ScalePorts& ports) {
  AdapterScales scales(b);
  for (int i = 0; i < static_cast<int>(kMaxAdapters); ++i)
    if ((ports.set >> i & 1u) != 0)
      scales.use(
          i, b.port(ports.port_of(i), "adapter_" + std::to_string(i) + "_scales", DType::f32, ports.shape, ports.rows));
  return scales;
}

}  // namespace

int bucket_for(int n, int max) noexcept {
  int bucket = 1;
  while (bucket < n) bucket *= 2;
  return std::min(bucket, max);
}

ggml::KvLayout kv_layout(const Hparams& hparams, const LayerHparams& layer, const ContextParams& params) {
  ggml::KvLayout layout{params.k_type, params.v_type, layer.n_head_kv, layer.dk, layer.dv};
  if (!hparams.has_latent_attention() || params.mla == 0) return layout;
  layout.n_head_kv = 1;
  layout.dk = hparams.mla.kv_rank + layer.n_rot;
  // Without flash attention mode 1 keeps the latent again as values, as its name means elsewhere.
  layout.dv = params.mla == 1 && !params.flash_attention ? hparams.mla.kv_rank : 0;
  return layout;
}

int n_layer_runs(const Hparams& hparams) noexcept {
  const int after = std::max(hparams.n_layer - kLayersOfFirstRun, 0);
  return 1 + (after + kLayersPerRun - 1) / kLayersPerRun;
}

int first_layer(int run) noexcept {
  return run == 0 ? 0 : kLayersOfFirstRun + (run - 1) * kLayersPerRun;
}

std::optional<StateSpec> plan_states(const Hparams& hparams, const ContextParams& params,
                                     std::span<const ggml::DeviceId> devices) {
  StateSpec spec;
  for (int i = 0; i < hparams.n_layer; ++i) {
    if (!hparams.layers[static_cast<std::size_t>(i)].recurrent) continue;
    spec.layers.push_back(LayerId(i));
    spec.devices.push_back(device_at(devices, i));
  }
  if (spec.layers.empty()) return std::nullopt;
  spec.slot_floats = hparams.delta_net.state_floats();
  spec.n_checkpoints = params.n_state_checkpoints;
  return spec;
}

int mla_expand_from(const Hparams& hparams, const LayerHparams& layer, const ContextParams& params) {
  if (params.mla == 1) return 0;
  if (params.mla == 2) return 1;
  if (params.mla == 3) return 2;
  // Per cell and head: the absorbed form multiplies 2 kv_rank + n_rot values for each row, the expanded one dk + dv,
  // after kv_rank * (nope + dv) for all rows together, which run as a matrix product of 8-bit weights.
  constexpr double kProductShare = 0.5;
  const double rank = hparams.mla.kv_rank, heads = layer.dk - layer.n_rot + layer.dv;
  const double saved = 2.0 * rank - heads;
  if (saved <= 0.0) return 0;
  return std::max(2, static_cast<int>(kProductShare * rank * heads / saved));
}

std::vector<KvGroupSpec> plan_kv_groups(const Hparams& hparams, const ContextParams& params,
                                        std::span<const ggml::DeviceId> devices) {
  std::vector<KvGroupSpec> groups;
  for (int i = 0; i < hparams.n_layer; ++i) {
    const LayerHparams& layer = hparams.layers[static_cast<std::size_t>(i)];
    if (layer.recurrent) continue;
    KvGroupSpec spec;
    spec.layout = kv_layout(hparams, layer, params);
    spec.device = device_at(devices, i);
    if (layer.window_kind == ggml::WindowKind::standard) {
      spec.kind = KvKind::window;
      spec.window = layer.window;
    }
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return same_group(g, spec); });
    if (it == groups.end()) it = groups.insert(groups.end(), spec);
    it->layers.push_back(LayerId(i));
  }
  for (KvGroupSpec& group : groups)
    group.n_blocks =
        group.kind == KvKind::window ? blocks_of_window_group(params, group.window) : blocks_of_full_group(params);
  return groups;
}

SegmentBuilder::SegmentBuilder(const Model& model, const ContextParams& params, const KvCache& cache,
                               const StepPorts& ports)
    : model_(model),
      family_(*find_family(model.hparams().arch)),
      params_(params),
      cache_(cache),
      ports_(ports),
      n_runs_(n_layer_runs(model.hparams())) {
  const Hparams& hparams = model.hparams();
  const RopeOverrides overrides = rope_overrides(params);
  rope_factors_ = llama::rope_factors(hparams, model.weights().global, overrides, params.n_ctx / params.n_seq_max);
  const float* factors =
      rope_factors_ != nullptr ? reinterpret_cast<const float*>(rope_factors_->placements.front().data) : nullptr;
  for (const LayerHparams& layer : hparams.layers) {
    KvCache::LayerRope rope{resolve_rope(hparams, layer, overrides), factors, params.k_hadamard};
    rope.params.has_factors = rope_factors_ != nullptr;
    // Where the rotated part of a cached key lies.
    if (hparams.has_latent_attention())
      rope.params.first = params.mla == 0 ? layer.dk - layer.n_rot : hparams.mla.kv_rank;
    ropes_.push_back(rope);
  }
  group_of_layer_.resize(hparams.layers.size());
  for (int g = 0; g < cache.n_groups(); ++g)
    for (const LayerId layer : cache.group(GroupId(g)).spec().layers)
      group_of_layer_[static_cast<std::size_t>(layer.v)] = GroupId(g);
  note_adapters();
}

void SegmentBuilder::note_adapters() {
  const ModelWeights& weights = model_.weights();
  adapters_in_.assign(static_cast<std::size_t>(n_segments()), 0);
  adapters_by_layer_.assign(static_cast<std::size_t>(n_segments(true)), 0);
  adapters_in_.front() = adapters_by_layer_.front() = adapters_of(weights.global[Role::token_embd]);
  if (!params_.embeddings) adapters_in_.back() = adapters_by_layer_.back() = adapters_of(weights.global[Role::output]);
  for (int run = 0; run < n_runs_; ++run)
    for (int i = first_layer(run); i < std::min(first_layer(run + 1), model_.hparams().n_layer); ++i)
      for (const TensorWithParts& parts : weights.layers[static_cast<std::size_t>(i)].parts) {
        adapters_in_[static_cast<std::size_t>(run) + 1] |= adapters_of(parts);
        adapters_by_layer_[static_cast<std::size_t>(i) + 1] |= adapters_of(parts);
      }
}

Graph SegmentBuilder::build(const SegmentKey& key) const {
  Graph graph = key.segment == 0                    ? build_input(key)
                : key.segment != head(key.by_layer) ? build_run(key)
                : params_.embeddings                ? build_embeddings(key)
                                                    : build_head(key);
  if (params_.observer != nullptr) observe_all(graph);
  const ggml::Fusion fusion{params_.fused_experts, params_.fused_up_gate, params_.fused_expert_sum};
  return fusion.all() ? graph : ggml::unfuse(graph, fusion);
}

Graph SegmentBuilder::build_input(const SegmentKey& key) const {
  GraphBuilder b(key.token_bucket, 1);
  const TensorId tokens = b.port(port::kTokens, "tokens", DType::i32, Shape(key.token_bucket), Rows::tokens);
  EmbeddingInputs inputs;
  inputs.tokens = tokens;
  inputs.positions = b.port(port::kPositions, "positions", DType::i32, Shape(key.token_bucket), Rows::tokens);
  inputs.token_types = b.port(port::kTokenTypes, "token_types", DType::i32, Shape(key.token_bucket), Rows::tokens);
  AdapterScales adapters =
      adapter_scales(b, {key.adapters, port::adapter_scales, Shape(1, key.token_bucket), Rows::tokens});
  b.output(embedding(b, model_.hparams(), model_.weights(), inputs, adapters),
           key.by_layer ? port::layer_stream(0) : port::stream(0));
  return b.take();
}

Graph SegmentBuilder::build_run(const SegmentKey& key) const {
  const Hparams& hparams = model_.hparams();
  const int t = key.token_bucket;
  GraphBuilder b(t, std::max(key.output_bucket, 1));
  const int border = key.segment - 1;
  const auto stream = key.by_layer ? port::layer_stream : port::stream;
  const TensorId x = b.port(stream(border), "stream", DType::f32, Shape(hparams.n_embd, t), Rows::tokens);
  const TensorId positions = b.port(port::kPositions, "positions", DType::i32, Shape(t), Rows::tokens);
  const TensorId output_rows = key.output_bucket > 0 ? b.port(port::kOutputRows, "output_rows", DType::i32,
                                                              Shape(key.output_bucket), Rows::outputs)
                                                     : TensorId{};
  const Shape of_spans(words(sizeof(ggml::AttnSpan)), params_.n_seq_max);
  std::vector<GraphBuilder::AttentionInputs> groups(static_cast<std::size_t>(cache_.n_groups()));
  for (int g = 0; g < cache_.n_groups(); ++g) {
    const std::string suffix = "." + std::to_string(g);
    GraphBuilder::AttentionInputs& in = groups[static_cast<std::size_t>(g)];
    in.spans = b.port(port::spans(GroupId(g)), "spans" + suffix, DType::i32, of_spans, Rows::fixed);
    in.block_table = b.port(port::block_table(GroupId(g)), "block_table" + suffix, DType::i32,
                            Shape(ports_.sizes().table_entries), Rows::fixed);
  }
  const TensorId state_spans = cache_.states() == nullptr ? TensorId{}
                                                          : b.port(port::spans(GroupId(cache_.n_groups())),
                                                                   "spans.state", DType::i32, of_spans, Rows::fixed);
  const int begin = key.by_layer ? border : first_layer(border);
  const int end = key.by_layer ? begin + 1 : std::min(first_layer(border + 1), hparams.n_layer);
  AdapterScales adapters = adapter_scales(b, {key.adapters, port::adapter_scales, Shape(1, t), Rows::tokens});
  std::vector<LayerBuilder::Renamed> renamed;
  std::vector<LayerBuilder> layers;
  layers.reserve(static_cast<std::size_t>(end - begin));
  for (int i = begin; i < end; ++i) {
    const auto index = static_cast<std::size_t>(i);
    LayerInputs inputs = layer_inputs(i);
    inputs.positions = positions;
    const std::string pool_name = "pool-" + std::to_string(i);
    if (hparams.layers[index].recurrent) {
      inputs.state.spans = state_spans;
      inputs.state.pool = b.port(port::pool(LayerId(i)), pool_name, DType::i32,
                                 Shape(words(cache_.states()->layer_bytes())), Rows::fixed);
    } else {
      const GroupId group = group_of_layer_[index];
      inputs.attention = groups[static_cast<std::size_t>(group.v)];
      inputs.attention.pool = b.port(port::pool(LayerId(i)), pool_name, DType::i32,
                                     Shape(words(cache_.group(group).layer_bytes())), Rows::fixed);
    }
    if (i == hparams.n_layer - 1) inputs.output_rows = output_rows;
    LayerBuilder& layer = layers.emplace_back(b, hparams, LayerId(i), model_.weights().layers[index], adapters);
    layer.set_inputs(inputs);
    if (i == begin)
      layer.set_stream(x);
    else
      layer.continue_from(layers[layers.size() - 2]);
    family_.layer(layer);
    layer.steer();
    renamed.insert(renamed.end(), layer.renamed().begin(), layer.renamed().end());
  }
  b.output(layers.back().sum(), stream(border + 1));
  Graph graph = b.take();
  for (const LayerBuilder::Renamed& r : renamed) graph.at(r.tensor).name = r.name;
  return graph;
}

ggml::PortId SegmentBuilder::last_stream(const SegmentKey& key) const {
  return key.by_layer ? port::layer_stream(last_run(true)) : port::stream(n_runs_);
}

/// What does not depend on the graph.
LayerInputs SegmentBuilder::layer_inputs(int layer) const {
  const Hparams& hparams = model_.hparams();
  const LayerHparams& own = hparams.layers[static_cast<std::size_t>(layer)];
  LayerInputs inputs;
  inputs.rope_factors = rope_factors_;
  inputs.rope = ropes_[static_cast<std::size_t>(layer)].params;
  inputs.rope.first = 0;
  inputs.attention_scale = attention_scale(hparams, own, inputs.rope);
  inputs.kv = kv_layout(hparams, own, params_);
  inputs.flash = params_.flash_attention;
  inputs.k_hadamard = params_.k_hadamard;
  inputs.v_hadamard = params_.v_hadamard;
  if (hparams.has_latent_attention()) {
    inputs.mla_expand_from = mla_expand_from(hparams, own, params_);
    inputs.mla_max_scratch = std::int64_t{params_.attention_max_batch_mib} << 20;
  }
  if (params_.expert_min >= 0 && params_.expert_min < hparams.experts.count) {
    inputs.experts_kept = params_.expert_min;
    inputs.expert_keep_ratio = params_.expert_threshold;
  }
  return inputs;
}

Graph SegmentBuilder::build_embeddings(const SegmentKey& key) const {
  const Hparams& hparams = model_.hparams();
  GraphBuilder b(key.token_bucket, params_.n_seq_max);
  const TensorId stream =
      b.port(last_stream(key), "stream", DType::f32, Shape(hparams.n_embd, key.token_bucket), Rows::tokens);
  TensorId x = final_norm(b, hparams, model_.weights(), stream);
  if (params_.pooling != Pooling::none) {
    const TensorId spans = b.port(port::spans(GroupId(0)), "spans.0", DType::i32,
                                  Shape(words(sizeof(ggml::AttnSpan)), params_.n_seq_max), Rows::fixed);
    const ggml::PoolKind kind = params_.pooling == Pooling::mean  ? ggml::PoolKind::mean
                                : params_.pooling == Pooling::cls ? ggml::PoolKind::first
                                                                  : ggml::PoolKind::last;
    x = b.pool(x, spans, {kind}, "pooled");
  }
  b.output(x, port::kEmbeddings);
  return b.take();
}

Graph SegmentBuilder::build_head(const SegmentKey& key) const {
  const Hparams& hparams = model_.hparams();
  const int n = key.output_bucket;
  GraphBuilder b(1, n);
  const TensorId stream =
      b.port(last_stream(key), "stream", DType::f32, Shape(hparams.n_embd, params_.n_ubatch), Rows::fixed);
  const TensorId rows = b.port(port::kHeadRows, "head_rows", DType::i32, Shape(n), Rows::outputs);
  const TensorId x = b.select_rows(stream, rows, "head_in");
  AdapterScales adapters = adapter_scales(b, {key.adapters, port::adapter_head_scales, Shape(1, n), Rows::outputs});
  const TensorId logits = lm_head(b, hparams, model_.weights(), x, adapters);
  b.output(logits, port::kLogits);
  if (key.sample) {
    const TensorId sources[] = {
        logits,
        b.port(port::kSampleRows, "sample_rows", DType::i32, Shape(words(sizeof(ggml::SampleRow)), n), Rows::outputs),
        b.port(port::kAdjust, "sample_adjust", DType::i32,
               Shape(words(sizeof(ggml::SampleAdjust)), static_cast<std::int64_t>(ports_.sizes().adjust_entries)),
               Rows::fixed),
        b.port(port::kMasks, "sample_masks", DType::i32, Shape(ports_.mask_words(), n), Rows::outputs)};
    const std::vector<TensorId> sampled = b.add(ggml::Op::sample, ggml::SampleParams{}, sources, {}, "sampled");
    b.output(sampled.front(), port::kSampled);
  }
  return b.take();
}

void SegmentBuilder::observe_all(Graph& graph) const {
  for (ggml::Node& node : graph.nodes) {
    for (const TensorId dst : node.dst) graph.at(dst).observed = true;
    if (node.op == ggml::Op::conv1d) continue;  // taps show the input of a product with a matrix; it has filters
    for (ggml::Slot& slot : node.slots)
      if (graph.at(slot.weight).shape.dims() > 1) slot.tapped = true;
  }
}

}  // namespace llama
