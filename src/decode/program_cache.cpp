#include "decode/program_cache.h"

#include "ggml/log.h"

namespace llama {

ProgramCache::ProgramCache(const SegmentBuilder& builder, const PortSets& ports, const ContextParams& params,
                           const OffloadRules& offload, std::span<ggml::Device* const> devices)
    : builder_(builder),
      ports_(ports),
      params_(params),
      offload_(offload),
      scheduler_({devices.begin(), devices.end()}, params.trace) {
  options_.observer = params.observer;
  options_.decompose_all = params.decompose_all;
  reserve_largest();
  if (offload_.top() > 0) reserve_layers();
}

ggml::Streaming ProgramCache::streaming(const SegmentKey& key) const {
  ggml::Streaming streaming;
  if (key.offload == 0) return streaming;
  streaming.device = offload_.device().v;
  streaming.wanted = [this, level = key.offload, keeps_ffn = key.keeps_ffn](const ggml::Weight& weight) {
    return offload_.wanted(weight, level, keeps_ffn);
  };
  streaming.half = key.segment % 2;
  streaming.whole = key.whole;
  streaming.ahead = params_.offload.ahead;
  return streaming;
}

/// Layer by layer with all weights that may be sent.
void ProgramCache::reserve_layers() {
  for (int segment = 1; segment <= builder_.last_run(true); ++segment) {
    SegmentKey key{.segment = segment, .token_bucket = params_.n_ubatch, .by_layer = true, .offload = offload_.top()};
    for (const bool whole : {true, false}) {
      key.whole = whole;
      key.adapters = 0;
      (void)reserve(key);
      key.adapters = builder_.adapters_in(segment, true);
      if (key.adapters != 0) (void)reserve(key);
    }
  }
}

void ProgramCache::reserve_largest() {
  int n_mixed = 0;
  for (int segment = 0; segment < builder_.n_segments(); ++segment) {
    SegmentKey key{.segment = segment, .token_bucket = params_.n_ubatch};
    if (segment == builder_.head() && !params_.embeddings)
      key = {.segment = segment, .output_bucket = ports_.front()->sizes().max_head_rows, .sample = true};
    n_mixed += reserve(key);
    key.adapters = builder_.adapters_in(segment);
    if (key.adapters != 0) (void)reserve(key);
  }
  if (n_mixed > 0)
    ggml::logf(ggml::LogLevel::info,
               "scheduler split_ops=%d reason=\"their tensors lie on several devices: each projection runs where its "
               "tensor is, activations cross\"",
               n_mixed);
}

int ProgramCache::reserve(const SegmentKey& key) {
  const std::unique_ptr<ggml::Schedule> schedule =
      scheduler_.cut(builder_.build(key), ports_.front()->bindings(), options_, streaming(key));
  (void)scheduler_.reserve(*schedule);  // nothing is compiled yet
  return schedule->n_mixed();
}

void ProgramCache::note_memory(const ggml::MemoryPlan& plan) {
  const double worst =
      scratch_live_bytes_ == 0 ? 0.0 : static_cast<double>(scratch_bytes_) / static_cast<double>(scratch_live_bytes_);
  if (plan.max_live_bytes == 0) return;
  if (static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.max_live_bytes) <= worst) return;
  scratch_bytes_ = plan.arena_bytes;
  scratch_live_bytes_ = plan.max_live_bytes;
}

ggml::Program& ProgramCache::get(const SegmentKey& key) {
  const auto found = programs_.find(key);
  if (found != programs_.end()) return *found->second;
  const ggml::Graph graph = builder_.build(key);
  const std::span<const ggml::PlacedPort> ports = ports_[static_cast<std::size_t>(key.ports)]->bindings();
  const std::unique_ptr<ggml::Schedule> schedule = scheduler_.cut(graph, ports, options_, streaming(key));
  const int n_splits = schedule->n_splits(), n_streams = schedule->n_streams();
  const std::vector<std::string> lines =
      ggml::log_enabled(ggml::LogLevel::trace) ? schedule->describe() : std::vector<std::string>{};
  // Programs are bound to the memory they were compiled with.
  if (scheduler_.reserve(*schedule)) programs_.clear();
  std::unique_ptr<ggml::Program> program = scheduler_.compile(*schedule, ports, options_);
  ++builds_;
  note_memory(program->memory());
  ggml::logf(ggml::LogLevel::debug, "graph build segment=%d tokens=%d outputs=%d sample=%d splits=%d sent=%d",
             key.segment, key.token_bucket, key.output_bucket, key.sample ? 1 : 0, n_splits, n_streams);
  for (const std::string& line : lines) ggml::logf(ggml::LogLevel::trace, "split %s", line.c_str());
  return *programs_.emplace(key, std::move(program)).first->second;
}

void ProgramCache::run(const SegmentKey& key, const ggml::StepCounts& counts, const ggml::StopToken& stop) {
  scheduler_.run(get(key), counts, stop);
}

}  // namespace llama
