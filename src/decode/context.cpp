#include "llama/context.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <sstream>
#include <string>
#include <utility>

#include "decode/offload_rules.h"
#include "decode/ports.h"
#include "decode/program_cache.h"
#include "decode/segments.h"
#include "decode/step_runner.h"
#include "decode/streamed_memory.h"
#include "ggml/error.h"
#include "ggml/hadamard.h"
#include "ggml/log.h"
#include "kv/kv_cache.h"
#include "llama/plan.h"
#include "model/hparams.h"
#include "model/weight_places.h"

namespace llama {

using ggml::DType;
using ggml::Error;
using ggml::ErrorCode;
using ggml::kKvBlockTokens;
using ggml::strf;

namespace {

constexpr int kMaxContext = 1 << 30;
constexpr int kMaxSequences = 4096;
constexpr int kMaxUbatch = 1 << 20;
constexpr int kLeastMaxBatchMib = 128;
constexpr int kMaxHeadRows = 64;  // logits of a wide vocabulary are large; more outputs take several turns of the head
constexpr std::size_t kAdjustPerRow = 256;

[[noreturn]] void refuse(const std::string& message, const std::string& hint) {
  throw Error(ErrorCode::invalid_argument, message, hint);
}

std::string type_name(DType type) {
  return std::string(ggml::type_info(type).id);
}

void check_kv_type(const char* what, DType type) {
  if (ggml::type_info(type).kv_capable) return;
  std::string known;
  for (int i = 0; i < ggml::kTypeCount; ++i)
    if (const auto other = static_cast<DType>(i); ggml::type_info(other).kv_capable)
      known += (known.empty() ? "" : ", ") + type_name(other);
  throw Error(ErrorCode::unsupported, strf("%s cache of type %s is not possible", what, type_name(type).c_str()),
              "use one of " + known);
}

/// `dim`: elements of a head.
void check_heads(const char* what, DType type, int dim, bool hadamard) {
  if (!ggml::KvLayout::fits(type, dim))
    throw Error(ErrorCode::unsupported,
                strf("%s cache of type %s keeps blocks of %d elements, which heads of %d are not", what,
                     type_name(type).c_str(), ggml::type_info(type).block_weights, dim),
                "use f16, bf16 or f32 for it");
  if (hadamard && !ggml::has_hadamard(dim))
    throw Error(
        ErrorCode::unsupported,
        strf("the Hadamard transform of the %s cache has no form for heads of %d elements, only for powers of two",
             what, dim),
        "leave -khad and -vhad out, or use -ctk and -ctv q8_0");
}

void check_layers(const ContextParams& p, const Hparams& hparams) {
  if ((p.k_hadamard || p.v_hadamard) && hparams.has_latent_attention())
    throw Error(ErrorCode::unsupported,
                "the Hadamard transform of the cache has no form for latent attention: its rows are keys and values "
                "in one, shared by all heads",
                "leave -khad and -vhad out");
  for (const LayerHparams& layer : hparams.layers) {
    if (layer.recurrent) continue;
    const ggml::KvLayout layout = kv_layout(hparams, layer, p);
    check_heads("K", p.k_type, layout.dk, p.k_hadamard);
    if (layout.dv > 0) check_heads("V", p.v_type, layout.dv, p.v_hadamard);
  }
}

void check_scales(std::span<const float> scales, std::size_t n_adapters) {
  if (scales.size() != n_adapters)
    refuse(strf("%zu adapter scales are given, the model has %zu adapters", scales.size(), n_adapters), {});
  for (const float scale : scales)
    if (!std::isfinite(scale)) refuse("an adapter scale is not a finite number", {});
}

void resolve_embeddings(ContextParams& p, const Hparams& hparams) {
  if (!p.pooling) p.pooling = hparams.pooling;
  if (hparams.is_encoder) {
    p.embeddings = true;
    // Nothing is kept from step to step: there is nothing to save by rounding.
    p.k_type = p.v_type = DType::f32;
    p.k_hadamard = p.v_hadamard = false;
  }
  if (p.embeddings && p.pooling == Pooling::rank)
    throw Error(ErrorCode::unsupported, "this version has no reranking heads", "use a model that gives embeddings");
}

ContextParams resolve(ContextParams p, const Hparams& hparams) {
  if (p.n_ctx == 0) p.n_ctx = hparams.n_ctx_train;
  if (p.n_ctx < 1 || p.n_ctx > kMaxContext)
    refuse(strf("context size %d is not between 1 and %d", p.n_ctx, kMaxContext), "set -c");
  if (p.n_seq_max < 1 || p.n_seq_max > kMaxSequences)
    refuse(strf("%d parallel sequences are not between 1 and %d", p.n_seq_max, kMaxSequences), "set -np");
  if (p.n_batch < 1) refuse(strf("batch size %d is not positive", p.n_batch), "set -b");
  if (p.n_ubatch < 1 || p.n_ubatch > kMaxUbatch)
    refuse(strf("ubatch size %d is not between 1 and %d", p.n_ubatch, kMaxUbatch), "set -ub");
  p.n_ctx = (p.n_ctx + kKvBlockTokens - 1) / kKvBlockTokens * kKvBlockTokens;
  if (p.n_ubatch > p.n_batch) {
    ggml::logf(ggml::LogLevel::warn, "ubatch size %d is larger than the batch size and was set to %d", p.n_ubatch,
               p.n_batch);
    p.n_ubatch = p.n_batch;
  }
  check_kv_type("K", p.k_type);
  check_kv_type("V", p.v_type);
  resolve_embeddings(p, hparams);
  if (p.mla && (*p.mla < 0 || *p.mla > 3)) refuse(strf("-mla %d is not between 0 and 3", *p.mla), "leave it out");
  if (p.n_state_checkpoints < 0) refuse(strf("%d checkpoints are not possible", p.n_state_checkpoints), {});
  if (p.attention_max_batch_mib > 0) p.attention_max_batch_mib = std::max(p.attention_max_batch_mib, kLeastMaxBatchMib);
  const bool has_v_plane = !hparams.has_latent_attention() || p.mla == 0 || (p.mla == 1 && !p.flash_attention);
  if (ggml::kv_form(p.v_type).quantised && !p.flash_attention && has_v_plane)
    refuse(strf("a V cache of type %s needs flash attention", type_name(p.v_type).c_str()),
           "turn flash attention on, or use f16 for V");
  check_layers(p, hparams);
  return p;
}

ContextParams resolve_adapters(ContextParams p, const Model& model) {
  const std::size_t n = model.adapters().size();
  if (p.adapter_scales.empty()) p.adapter_scales.resize(n, 0.0f);
  check_scales(p.adapter_scales, n);
  return p;
}

PortSizes port_sizes(const Hparams& hparams, const ContextParams& params) {
  PortSizes sizes;
  sizes.n_ubatch = params.n_ubatch;
  sizes.n_seq_max = params.n_seq_max;
  sizes.n_embd = hparams.n_embd;
  sizes.n_vocab = hparams.n_vocab;
  sizes.n_adapters = static_cast<int>(params.adapter_scales.size());
  sizes.max_head_rows = std::min(params.n_ubatch, kMaxHeadRows);
  if (params.embeddings) sizes.embedding_rows = params.pooling == Pooling::none ? params.n_ubatch : params.n_seq_max;
  sizes.table_entries = params.n_seq_max * (params.n_ctx / kKvBlockTokens + 1);
  sizes.adjust_entries = static_cast<std::size_t>(sizes.max_head_rows) * kAdjustPerRow;
  return sizes;
}

/// How latent attention is computed, and what recurrent layers keep.
void log_special_layers(const Hparams& hparams, const ContextParams& p, const KvCache& cache) {
  if (hparams.has_latent_attention()) {
    const int from = mla_expand_from(hparams, hparams.layers.front(), p);
    const char* decode = p.mla == 0 || from == 1 ? "expanded" : "absorbed";
    const char* prompt = p.mla == 0 || from > 0 ? "expanded" : "absorbed";
    ggml::logf(ggml::LogLevel::info,
               "latent attention cache=%s decode=%s prompt=%s expanded_from_tokens=%d max_batch_mib=%d",
               p.mla == 0 ? "keys_and_values" : "latents", decode, prompt, from, p.attention_max_batch_mib);
  } else if (p.mla) {
    ggml::logf(ggml::LogLevel::info, "-mla %d has no effect: the model has no latent attention", *p.mla);
  }
  if (const StateCache* states = cache.states())
    ggml::logf(ggml::LogLevel::info, "recurrent layers=%zu state_bytes_per_sequence=%zu checkpoints=%d bytes=%zu",
               states->spec().layers.size(), states->state_bytes(), states->spec().n_checkpoints,
               states->total_bytes());
}

const Hparams& loaded_hparams(const Model& model) {
  if (model.weights().layers.empty()) refuse("the model was loaded without its weights", "load it without vocab_only");
  return model.hparams();
}

constexpr std::size_t kMaxInFlight = 2;

/// Whether a device can run what works on a layer's cells or states, in one form or another.
bool works_on_state(const Hparams& hparams, const LayerHparams& layer, const ContextParams& params,
                    const ggml::Device& device) {
  using ggml::Op;
  if (layer.recurrent)
    return device.supports(Op::conv1d) && (device.supports(Op::delta_net) || device.supports(Op::delta_rule));
  if (!device.supports_cache(params.k_type)) return false;
  if (kv_layout(hparams, layer, params).dv > 0 && !device.supports_cache(params.v_type)) return false;
  // The transforms stand between projections and attention: where they run, the cells are.
  if ((params.k_hadamard || params.v_hadamard) && !device.supports(Op::hadamard)) return false;
  const Op whole = hparams.has_latent_attention() ? Op::mla : Op::attention;
  return device.supports(whole) || (device.supports(Op::kv_append) && device.supports(Op::attn_dense));
}

std::vector<ggml::DeviceId> homes_of_states(const Hparams& hparams, const std::vector<ggml::Device*>& devices,
                                            const Plan& plan, const ContextParams& params) {
  check_plan(plan, devices.size());
  std::vector<ggml::DeviceId> homes;
  int n_moved = 0;
  for (std::size_t i = 0; i < hparams.layers.size(); ++i) {
    ggml::DeviceId home = device_of(plan.kv_device, i);
    if (home.v != 0 &&
        !works_on_state(hparams, hparams.layers[i], params, *devices[static_cast<std::size_t>(home.v)])) {
      home = ggml::DeviceId(0);
      ++n_moved;
    }
    homes.push_back(home);
  }
  if (n_moved > 0)
    ggml::logf(ggml::LogLevel::warn, "%d layers keep their cache on the CPU: their devices cannot work on it", n_moved);
  return homes;
}

/// The stream lies where it is read next; in front of the head with the last layer, since few of its rows go on.
PortHomes port_homes(const Hparams& hparams, const std::vector<ggml::Device*>& devices, const Plan& plan,
                     bool by_layer) {
  PortHomes homes{devices, {}, plan.layer_device};
  const int n_runs = n_layer_runs(hparams);
  for (int border = 0; border <= n_runs; ++border)
    homes.streams.push_back(
        device_of(plan.layer_device, static_cast<std::size_t>(std::min(first_layer(border), hparams.n_layer - 1))));
  for (int border = 0; by_layer && border <= hparams.n_layer; ++border)
    homes.layer_streams.push_back(
        device_of(plan.layer_device, static_cast<std::size_t>(std::min(border, hparams.n_layer - 1))));
  return homes;
}

/// Two sets where a step has several ubatches and cards take turns with the layers, or each layer with the ubatches: a
/// card goes on with the next ubatch while its successor, or the host, is busy with the last one.
PortSets port_sets(const PortSizes& sizes, const KvCache& cache, const PortHomes& homes, const ContextParams& params) {
  std::vector<bool> has_layers(homes.devices.size(), false);
  for (const ggml::DeviceId device : homes.layers) has_layers[static_cast<std::size_t>(device.v)] = device.v != 0;
  const auto n_cards = std::count(has_layers.begin(), has_layers.end(), true);
  PortSets sets;
  sets.push_back(std::make_unique<StepPorts>(sizes, cache, homes));
  const bool takes_turns = n_cards > 1 || !homes.layer_streams.empty();
  if (takes_turns && params.n_batch > params.n_ubatch) sets.push_back(std::make_unique<StepPorts>(sizes, cache, homes));
  return sets;
}

}  // namespace

struct Context::Impl {
  Impl(const Model& m, std::span<ggml::Device* const> list, const Plan& plan, const ContextParams& wanted)
      : model(m),
        devices(list.begin(), list.end()),
        params(resolve_adapters(resolve(wanted, loaded_hparams(m)), m)),
        state_homes(homes_of_states(m.hparams(), devices, plan, params)),
        state_spec(plan_states(m.hparams(), params, state_homes)),
        cache(plan_kv_groups(m.hparams(), params, state_homes), state_spec ? &*state_spec : nullptr, params.n_seq_max,
              params.n_ctx, devices),
        offload(m, params, devices),
        homes(port_homes(m.hparams(), devices, plan, offload.top() > 0)),
        ports(port_sets(port_sizes(m.hparams(), params), cache, homes, params)),
        segments(m, params, cache, *ports.front()),
        streamed(offload.top() > 0 ? StreamedMemory(*devices[static_cast<std::size_t>(offload.device().v)])
                                   : StreamedMemory()),
        programs(segments, ports, params, offload, devices),
        runner(m, params, cache, {ports, programs, segments, offload, homes, streamed}) {
    const auto n_seq = static_cast<std::size_t>(params.n_seq_max);
    growths.reserve(n_seq);
    first_cells.reserve(n_seq);
    in_step.resize(n_seq, false);
    stats.kv_total_bytes = cache.total_bytes();
    stats.kv_bytes_per_token = cache.bytes_per_cell();
    for (const ggml::Device* device : devices) stats.devices.push_back(device->name());
    for (ContextStats::Total* total : {&stats.decode, &stats.prompt}) total->scheduler.links.resize(devices.size());
    for (Flight& flight : flights) flight.output.result.sequences.reserve(n_seq);
    refresh_stats();
  }

  void check_step(const Step& step);
  void check_encoder_input(const StepSequence& s, int length) const;
  void run(const Step& step, const ggml::StopToken& stop, StepOutput& output);
  void refresh_stats();

  const Model& model;
  const std::vector<ggml::Device*> devices;
  const ContextParams params;
  const std::vector<ggml::DeviceId> state_homes;  // per layer: keys and values, or the recurrent state
  const std::optional<StateSpec> state_spec;
  KvCache cache;
  const OffloadRules offload;
  const PortHomes homes;
  const PortSets ports;
  SegmentBuilder segments;
  StreamedMemory streamed;  // what copies that programs began read
  ProgramCache programs;
  StepRunner runner;
  ContextStats stats;

  std::vector<KvCache::Growth> growths;
  std::vector<int> first_cells;
  std::vector<bool> in_step;

  /// A submitted step until the collect() after its own.
  struct Flight {
    StepOutput output;
    std::exception_ptr error;
  };
  std::array<Flight, kMaxInFlight + 1> flights;  // one more: results live until the next collect()
  std::uint64_t submitted = 0;
  std::uint64_t collected = 0;
};

void Context::Impl::check_step(const Step& step) {
  growths.clear();
  first_cells.clear();
  if (step.sequences.empty()) refuse("the step has no sequences", {});
  std::size_t n_tokens = 0;
  std::fill(in_step.begin(), in_step.end(), false);
  for (const StepSequence& s : step.sequences) {
    cache.check_alive(s.seq);
    if (in_step[static_cast<std::size_t>(s.seq.v)]) refuse(strf("sequence %d is in the step twice", s.seq.v), {});
    in_step[static_cast<std::size_t>(s.seq.v)] = true;
    if (s.tokens.empty()) refuse(strf("sequence %d has no tokens in this step", s.seq.v), {});
    if (s.sampler != nullptr && s.outputs == Outputs::none)
      refuse(strf("sequence %d has a sampler but wants no output", s.seq.v), {});
    n_tokens += s.tokens.size();
    if (n_tokens > static_cast<std::size_t>(params.n_batch))
      throw Error(ErrorCode::exceeds_limit, strf("the step has more than %d tokens", params.n_batch),
                  "submit fewer tokens at a time, or raise the batch size");
    for (const Token token : s.tokens)
      if (token < 0 || token >= model.hparams().n_vocab)
        refuse(strf("token %d is not in the vocabulary of %d tokens", token, model.hparams().n_vocab), {});
    if (!s.adapter_scales.empty()) check_scales(s.adapter_scales, params.adapter_scales.size());
    const int length = cache.length(s.seq);
    if (model.hparams().is_encoder) check_encoder_input(s, length);
    if (params.embeddings && s.sampler != nullptr) refuse("a context for embeddings samples no tokens", {});
    if (static_cast<int>(s.tokens.size()) > params.n_ctx - length)
      throw Error(ErrorCode::exceeds_limit,
                  strf("sequence %d has %d tokens and cannot take %zu more: the context has %d", s.seq.v, length,
                       s.tokens.size(), params.n_ctx),
                  "shorten the prompt, or start with a larger context size");
    growths.push_back({s.seq, static_cast<int>(s.tokens.size())});
    first_cells.push_back(length);
  }
}

void Context::Impl::check_encoder_input(const StepSequence& s, int length) const {
  if (length > 0)
    refuse(strf("sequence %d has %d tokens: an encoder takes a whole sequence at once", s.seq.v, length),
           "remove the sequence and give all of its tokens");
  const int limit = std::min(params.n_ubatch, model.hparams().n_ctx_train);
  if (s.tokens.size() > static_cast<std::size_t>(limit))
    throw Error(
        ErrorCode::exceeds_limit,
        strf("sequence %d has %zu tokens; this encoder takes up to %d at once", s.seq.v, s.tokens.size(), limit),
        params.n_ubatch < model.hparams().n_ctx_train ? "shorten the text, or raise -ub" : "shorten the text");
}

void Context::Impl::run(const Step& step, const ggml::StopToken& stop, StepOutput& output) {
  try {
    runner.run(step, first_cells, stop, output);
  } catch (...) {
    for (std::size_t i = 0; i < growths.size(); ++i) cache.roll_back(growths[i].seq, first_cells[i]);
    throw;
  }
  for (const KvCache::Growth& growth : growths) {
    cache.settle(growth.seq);
    stats.tokens += static_cast<std::uint64_t>(growth.n_cells);
  }
  ++stats.steps;
  const bool decodes = std::all_of(growths.begin(), growths.end(), [](const auto& g) { return g.n_cells == 1; });
  ContextStats::Total& total = decodes ? stats.decode : stats.prompt;
  ++total.steps;
  total.scheduler += programs.scheduler_stats();
}

void Context::Impl::refresh_stats() {
  stats.graph_builds = programs.builds();
  stats.arena_bytes = programs.arena_bytes();
  stats.staging_bytes = programs.staging_bytes() + runner.kept_bytes(offload.device());
  stats.scratch_bytes = programs.scratch_bytes();
  stats.scratch_live_bytes = programs.scratch_live_bytes();
  stats.scheduler = programs.scheduler_stats();
  stats.weight_bytes = runner.weight_bytes();
  stats.kv_bytes = runner.kv_bytes();
  stats.kv_blocks_total = stats.kv_blocks_used = 0;
  for (int g = 0; g < cache.n_groups(); ++g) {
    const BlockPool& pool = cache.group(GroupId(g)).pool();
    stats.kv_blocks_total += pool.total();
    stats.kv_blocks_used += pool.total() - pool.free();
  }
}

Context::Context(const Model& model, ggml::Device& device, const ContextParams& params)
    : Context(model, std::vector<ggml::Device*>{&device}, Plan{}, params) {}

Context::Context(const Model& model, std::span<ggml::Device* const> devices, const Plan& plan,
                 const ContextParams& params)
    : impl_(std::make_unique<Impl>(model, devices, plan, params)) {
  const ContextParams& p = impl_->params;
  ggml::logf(ggml::LogLevel::info,
             "context n_ctx=%d n_batch=%d n_ubatch=%d n_seq=%d k=%s v=%s k_hadamard=%d v_hadamard=%d "
             "flash_attention=%d kv_bytes=%llu "
             "kv_bytes_per_token=%llu arena_bytes=%llu",
             p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max, type_name(p.k_type).c_str(), type_name(p.v_type).c_str(),
             p.k_hadamard ? 1 : 0, p.v_hadamard ? 1 : 0, p.flash_attention ? 1 : 0,
             static_cast<unsigned long long>(impl_->stats.kv_total_bytes),
             static_cast<unsigned long long>(impl_->stats.kv_bytes_per_token),
             static_cast<unsigned long long>(impl_->stats.arena_bytes));
  ggml::logf(ggml::LogLevel::info, "fused_moe = %d", p.fused_experts ? 1 : 0);
  ggml::logf(ggml::LogLevel::info, "fused_up_gate = %d", p.fused_up_gate ? 1 : 0);
  log_special_layers(model.hparams(), p, impl_->cache);
}

Context::~Context() {
  if (!impl_->params.report_schedule || impl_->stats.steps == 0) return;
  std::istringstream lines(sched_report());
  for (std::string line; std::getline(lines, line);) ggml::logf(ggml::LogLevel::info, "%s", line.c_str());
}

const ContextParams& Context::params() const {
  return impl_->params;
}
const Model& Context::model() const {
  return impl_->model;
}
const ContextStats& Context::stats() const {
  impl_->refresh_stats();
  return impl_->stats;
}

std::string Context::sched_report() const {
  std::string text;
  const ContextStats& stats = impl_->stats;
  const std::pair<const char*, const ContextStats::Total*> kinds[] = {{"prompt", &stats.prompt},
                                                                      {"decode", &stats.decode}};
  for (const auto& [name, total] : kinds) {
    if (total->steps == 0) continue;
    text += ggml::strf("%ssched %s: %s", text.empty() ? "" : "\n", name,
                       ggml::report(total->scheduler, total->steps, impl_->devices).c_str());
  }
  return text;
}

SeqId Context::create_sequence() {
  return impl_->cache.create();
}
void Context::remove_sequence(SeqId seq) {
  impl_->cache.remove(seq);
}

int Context::length(SeqId seq) const {
  impl_->cache.check_alive(seq);
  return impl_->cache.length(seq);
}

void Context::truncate(SeqId seq, int n_tokens) {
  impl_->cache.truncate(seq, n_tokens);
}

int Context::resume_point(SeqId seq, int n_tokens) const {
  impl_->cache.check_alive(seq);
  return impl_->cache.resume_point(seq, n_tokens);
}

void Context::share_prefix(SeqId dst, SeqId src, int n_tokens) {
  impl_->cache.share_prefix(dst, src, n_tokens);
}

void Context::shift(SeqId seq, int begin, int n) {
  impl_->cache.shift(seq, begin, n, impl_->segments.ropes());
}

bool Context::can_append(SeqId seq, int n_tokens) const {
  impl_->cache.check_alive(seq);
  if (n_tokens < 0 || n_tokens > impl_->params.n_ctx - impl_->cache.length(seq)) return false;
  const KvCache::Growth growth{seq, n_tokens};
  return impl_->cache.can_append({&growth, 1});
}

void Context::check_integrity() const {
  impl_->cache.check_integrity();
}

Ticket Context::submit(const Step& step, const ggml::StopToken& stop) {
  Impl& impl = *impl_;
  if (impl.submitted - impl.collected >= kMaxInFlight)
    throw Error(ErrorCode::unavailable, strf("%zu steps wait to be collected", kMaxInFlight), "collect one first");
  impl.check_step(step);
  impl.cache.append(impl.growths);
  Impl::Flight& flight = impl.flights[impl.submitted % impl.flights.size()];
  flight.error = nullptr;
  try {
    impl.run(step, stop, flight.output);
  } catch (...) {
    flight.error = std::current_exception();
  }
  return {++impl.submitted};
}

const StepResult& Context::collect(Ticket ticket) {
  Impl& impl = *impl_;
  if (ticket.number != impl.collected + 1 || ticket.number > impl.submitted)
    throw Error(
        ErrorCode::invalid_argument,
        strf("step %llu cannot be collected now: %llu of %llu were", static_cast<unsigned long long>(ticket.number),
             static_cast<unsigned long long>(impl.collected), static_cast<unsigned long long>(impl.submitted)));
  Impl::Flight& flight = impl.flights[impl.collected % impl.flights.size()];
  ++impl.collected;
  if (flight.error) std::rethrow_exception(flight.error);
  return flight.output.result;
}

}  // namespace llama
