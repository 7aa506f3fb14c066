#include "common/setup/setup.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "common/args/build_info.h"
#include "common/log/log.h"
#include "common/log/progress.h"
#include "common/setup/numa.h"
#include "common/setup/planned_run.h"
#include "ggml/error.h"
#include "ggml/kv_layout.h"
#include "ggml/log.h"
#include "ggml/threads.h"

namespace common {
namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

llama::KvOverride as_override(const MetadataOverride& given) {
  switch (given.type) {
    case MetadataOverride::Type::integer:
      return {given.key, "int", std::to_string(given.integer)};
    case MetadataOverride::Type::number:
      return {given.key, "float", strf("%.17g", given.number)};
    case MetadataOverride::Type::boolean:
      return {given.key, "bool", given.boolean ? "true" : "false"};
    case MetadataOverride::Type::text:
      break;
  }
  return {given.key, "str", given.text};
}

llama::LoadMode as_load_mode(LoadMode mode) {
  switch (mode) {
    case LoadMode::read:
      return llama::LoadMode::read;
    case LoadMode::direct_io:
      return llama::LoadMode::direct_io;
    case LoadMode::mmap:
      break;
  }
  return llama::LoadMode::mmap;
}

/// `n_ctx` cells, or so many more that each sequence's share is a whole number of blocks.
int whole_blocks_per_sequence(std::int64_t n_ctx, std::int64_t n_seq) {
  const std::int64_t unit = n_seq * ggml::kKvBlockTokens;
  const std::int64_t cells = (n_ctx + unit - 1) / unit * unit;
  return static_cast<int>(std::min<std::int64_t>(cells, std::numeric_limits<int>::max()));  // the context refuses that
}

void copy_rope(const RopeSettings& rope, llama::ContextParams& params) {
  params.rope_freq_base = rope.freq_base;
  params.rope_freq_scale = rope.freq_scale;
  params.yarn_ext_factor = rope.yarn_ext_factor;
  params.yarn_attn_factor = rope.yarn_attn_factor;
  params.yarn_beta_fast = rope.yarn_beta_fast;
  params.yarn_beta_slow = rope.yarn_beta_slow;
  params.yarn_orig_ctx = rope.yarn_orig_ctx;
  if (rope.scaling == RopeScaling::none) params.rope_scaling = "none";
  if (rope.scaling == RopeScaling::linear) params.rope_scaling = "linear";
  if (rope.scaling == RopeScaling::yarn) params.rope_scaling = "yarn";
}

}  // namespace

ThreadCounts thread_counts(const Settings& settings) {
  ThreadCounts counts;
  const ThreadSettings given = placed_threads(settings.threads);
  const auto default_count = [](const std::vector<int>& cpus) {
    return cpus.empty() ? ggml::physical_cores() : static_cast<int>(cpus.size());
  };
  counts.decode = given.n_threads > 0 ? given.n_threads : default_count(given.cpus);
  counts.batch = counts.decode;
  if (given.cpus_batch && given.n_threads <= 0) counts.batch = default_count(*given.cpus_batch);
  if (given.n_threads_batch > 0) counts.batch = given.n_threads_batch;
  return counts;
}

namespace {

ggml::CpuTeam make_team(const std::vector<int>& cpus, bool strict, int priority, int poll) {
  return {cpus, strict, static_cast<ggml::ThreadPriority>(priority), poll};
}

void warn_of_few_cpus(const ggml::CpuTeam& team, int n_threads, const char* what) {
  if (team.affinity.empty() || team.affinity.size() >= static_cast<std::size_t>(n_threads)) return;
  ggml::logf(ggml::LogLevel::warn,
             "%d threads for %s share %zu CPUs and will wait for one another: use fewer (-t, -tb)", n_threads, what,
             team.affinity.size());
}

}  // namespace

std::unique_ptr<ggml::Device> make_device(const Settings& settings) {
  ggml::CpuOptions options;
  const ThreadCounts threads = thread_counts(settings);
  options.n_threads = threads.decode;
  options.n_threads_batch = threads.batch;
  const ThreadSettings given = placed_threads(settings.threads);
  options.team = make_team(given.cpus, given.strict, given.priority, given.poll);
  options.batch_team = make_team(given.cpus_batch.value_or(given.cpus), given.strict_batch.value_or(given.strict),
                                 given.priority_batch.value_or(given.priority), given.poll_batch.value_or(given.poll));
  options.isa = given.cpu_isa;
  warn_of_few_cpus(options.team, threads.decode, "generation");
  warn_of_few_cpus(*options.batch_team, threads.batch, "prompts");
  return ggml::make_cpu_device(options);
}

std::vector<llama::KvOverride> metadata_overrides(const Settings& settings) {
  std::vector<llama::KvOverride> out;
  for (const MetadataOverride& given : settings.model.overrides) out.push_back(as_override(given));
  return out;
}

llama::ModelParams model_params(const Settings& settings) {
  if (settings.model.path.empty()) {
    throw Error(ErrorCode::invalid_argument, "no model was given", "pass a GGUF file with -m FILE");
  }
  llama::ModelParams params;
  params.path = settings.model.path;
  params.load_mode = as_load_mode(settings.model.load_mode);
  params.lock_memory = settings.model.lock_memory;
  params.check_tensors = settings.model.check_tensors;
  params.kv_overrides = metadata_overrides(settings);
  params.merge_qkv = settings.model.merge_qkv;
  params.merge_up_gate = settings.model.merge_up_gate;
  params.repack = settings.model.repack;
  for (const ScaledFile& file : settings.model.adapters) params.adapters.push_back(file.path);
  for (const ScaledFile& file : settings.model.control_vectors)
    params.control_vectors.push_back({file.path, file.scale});
  params.control_vector_layers = settings.model.control_vector_layers;
  return params;
}

namespace {

/// A callback that draws a progress bar.
llama::LoadProgress loading_bar() {
  return [bar = std::shared_ptr<Progress>()](std::uint64_t done, std::uint64_t total) mutable {
    if (bar == nullptr)
      bar = std::make_shared<Progress>("loading", static_cast<std::int64_t>(total), Progress::Unit::bytes);
    bar->update(static_cast<std::int64_t>(done));
    return true;
  };
}

}  // namespace

std::unique_ptr<llama::Model> load_model(const Settings& settings, ggml::Device& device) {
  return llama::Model::load(model_params(settings), device, loading_bar());
}

std::unique_ptr<llama::Model> load_model(const Settings& settings, const PlannedRun& run) {
  return llama::Model::load(model_params(settings), run.machine->pointers(), run.plan(), loading_bar());
}

int sequences_of(Tool tool, const Settings& settings) {
  constexpr int kSlots = 4;
  return tool == Tool::server ? settings.context.n_parallel.value_or(kSlots) : 1;
}

llama::ContextParams context_params(const Settings& settings, const llama::ModelInfo& info, int n_seq) {
  llama::ContextParams params;
  params.n_ctx = settings.context.n_ctx.value_or(0);
  if (params.n_ctx <= 0) params.n_ctx = info.n_ctx_train;
  // With a share that is not whole blocks, the last slots to fill up would find no block left.
  params.n_ctx = whole_blocks_per_sequence(params.n_ctx, settings.cache.unified ? 1 : std::max(n_seq, 1));
  params.n_batch = settings.context.n_batch;
  params.n_ubatch = settings.context.n_ubatch;
  params.n_seq_max = n_seq;
  params.k_type = settings.cache.type_k;
  params.v_type = settings.cache.type_v;
  params.k_hadamard = settings.cache.k_hadamard;
  params.v_hadamard = settings.cache.v_hadamard;
  params.flash_attention = settings.context.flash_attention != Tristate::off;
  params.report_schedule = settings.schedule.report;
  params.fused_experts = settings.context.fused_experts;
  params.fused_up_gate = settings.context.fused_up_gate;
  params.fused_expert_sum = settings.context.fused_expert_sum;
  params.reuse_graphs = settings.context.graph_reuse;
  params.mla = settings.context.mla;
  params.attention_max_batch_mib = settings.context.attention_max_batch_mib;
  params.expert_min = settings.context.expert_min;
  params.expert_threshold = settings.context.expert_threshold;
  if (settings.context.n_checkpoints) params.n_state_checkpoints = *settings.context.n_checkpoints;
  for (const ScaledFile& file : settings.model.adapters)
    params.adapter_scales.push_back(settings.model.adapters_start_at_zero ? 0.0f : file.scale);
  copy_rope(settings.context.rope, params);
  return params;
}

void warm_up(llama::Context& context) {
  const llama::Vocab& vocab = context.model().vocab();
  const llama::Token first = vocab.special().bos != llama::kNoToken ? vocab.special().bos : 0;
  const llama::SeqId seq = context.create_sequence();
  const llama::StepSequence row{seq, {&first, 1}, llama::Outputs::last, nullptr};
  context.run({{&row, 1}});
  context.remove_sequence(seq);
}

std::string build_name() {
  return strf("b%d-%s", build_number(), std::string(build_commit()).c_str());
}

std::string model_name(const Settings& settings) {
  if (!settings.server.aliases.empty()) return settings.server.aliases.front();
  return std::filesystem::path(settings.model.path).filename().string();
}

}  // namespace common
