#include "decode/program_cache.h"

#include <algorithm>

#include "ggml/log.h"

namespace llama {

namespace {

constexpr std::size_t kSmallestArena = 64;

}  // namespace

ProgramCache::ProgramCache(const SegmentBuilder& builder, const StepPorts& ports, const ContextParams& params,
                           ggml::Device& device)
    : builder_(builder), ports_(ports), params_(params), device_(device), executor_(device.make_executor()) {
  options_.observer = params.observer;
  options_.decompose_all = params.decompose_all;
  arena_ = device.allocate(largest_arena(), ggml::BufferKind::device);
}

std::size_t ProgramCache::largest_arena() const {
  std::size_t bytes = kSmallestArena;
  for (int segment = 0; segment < builder_.n_segments(); ++segment) {
    SegmentKey key{.segment = segment, .token_bucket = params_.n_ubatch};
    if (segment == builder_.head() && !params_.embeddings)
      key = {.segment = segment, .output_bucket = ports_.sizes().max_head_rows, .sample = true};
    bytes = std::max(bytes, executor_->arena_bytes(builder_.build(key), options_));
  }
  return bytes;
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
  const auto found = programs_.find(key.packed());
  if (found != programs_.end()) return *found->second;
  const ggml::Graph graph = builder_.build(key);
  const std::size_t wanted = executor_->arena_bytes(graph, options_);
  if (wanted > arena_->bytes()) {
    // Programs are bound to the arena they were compiled with.
    programs_.clear();
    arena_ = device_.allocate(wanted, ggml::BufferKind::device);
  }
  std::unique_ptr<ggml::Program> program = executor_->compile(graph, ports_.bindings(), *arena_, options_);
  ++builds_;
  note_memory(program->memory());
  ggml::logf(ggml::LogLevel::debug, "graph build segment=%d tokens=%d outputs=%d sample=%d arena_bytes=%zu",
             key.segment, key.token_bucket, key.output_bucket, key.sample ? 1 : 0, wanted);
  return *programs_.emplace(key.packed(), std::move(program)).first->second;
}

void ProgramCache::run(const SegmentKey& key, const ggml::StepCounts& counts, const ggml::StopToken& stop) {
  executor_->run(get(key), counts, stop);
}

}  // namespace llama
