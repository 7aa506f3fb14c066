#include "common/setup/planned_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "common/setup/setup.h"
#include "ggml/kv_layout.h"
#include "ggml/log.h"
#include "llama/context_memory.h"

namespace common {
namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::logf;
using ggml::LogLevel;
using ggml::strf;

static_assert(static_cast<int>(ExpertBlocks::even) == static_cast<int>(llama::ExpertBlocks::even));

llama::PlacementRules rules_of(const Settings& settings) {
  const PlacementSettings& given = settings.placement;
  llama::PlacementRules rules;
  rules.n_gpu_layers = given.n_gpu_layers;
  for (const auto& [pattern, buffer] : given.tensor_rules)
    rules.tensor_rules.push_back({llama::NamePattern::compile(pattern).take(), buffer});
  rules.cpu_moe = given.cpu_moe;
  rules.n_cpu_moe = given.n_cpu_moe;
  rules.cpu_moe_blocks = static_cast<llama::ExpertBlocks>(given.n_cpu_moe_blocks);
  rules.n_cpu_ffn = given.n_cpu_ffn;
  rules.split_mode = given.split_mode == SplitMode::none ? llama::SplitMode::none : llama::SplitMode::layer;
  rules.tensor_split = given.tensor_split;
  rules.main_gpu = given.main_gpu;
  rules.kv_offload = given.kv_offload;
  rules.mapped = settings.model.load_mode == LoadMode::mmap && !settings.model.repack;
  return rules;
}

llama::OffloadRequest offload_request(const Settings& settings, const llama::ContextParams& context) {
  const OffloadSettings& given = settings.placement.offload;
  llama::OffloadRequest request;
  request.enabled =
      settings.placement.op_offload && (given.mul_mat || given.mul_mat_id || given.up_gate || given.moe_up_gate);
  request.min_batch = given.min_batch;
  request.batch_size = given.batch_size;
  request.tokens_per_byte = given.batch_size_per_byte;
  request.products.only_used_experts = given.only_active_experts;
  request.products.dense = given.mul_mat;
  request.products.dense_up_gate = given.up_gate;
  request.products.experts = given.mul_mat_id;
  request.products.experts_up_gate = given.moe_up_gate;
  request.n_batch = context.n_batch;
  request.n_ubatch = context.n_ubatch;
  return request;
}

bool fit_is_on(Fit fit, const llama::PlacementRules& rules) {
  if (fit != Fit::automatic) return fit != Fit::off;
  return !rules.n_gpu_layers && rules.tensor_rules.empty();
}

/// Shares and margins are for the GPUs that there are.
void check_lists(const PlacementSettings& placement, const Machine& machine) {
  const std::size_t n_gpus = machine.devices.size() - 1;
  const auto check = [&](const char* flag, std::size_t n_given) {
    if (n_gpus == 0 || n_given <= n_gpus) return;
    std::string names;
    for (std::size_t d = 1; d <= n_gpus; ++d) names += (d > 1 ? ", " : "") + machine.descriptions[d].name;
    throw Error(ErrorCode::invalid_argument,
                strf("error: %s: %zu values for %zu GPUs (%s)", flag, n_given, n_gpus, names.c_str()),
                "Give one for each, in the order of -dev.");
  };
  check("-ts", placement.tensor_split.size());
  if (placement.fit_margins_mib.size() > 1) check("--fit-target", placement.fit_margins_mib.size());
}

/// Index behind the CPU of a GPU that -gfm names, or counts.
std::size_t gpu_of(const std::string& which, const Machine& machine) {
  std::string known;
  for (std::size_t d = 1; d < machine.descriptions.size(); ++d) {
    const std::string& name = machine.descriptions[d].name;
    if (which == name || which == std::to_string(d - 1)) return d;
    known += strf("%s%zu or %s", known.empty() ? "" : ", ", d - 1, name.c_str());
  }
  throw Error(ErrorCode::invalid_argument, "error: -gfm: there is no GPU " + which,
              "GPUs: " + (known.empty() ? std::string("(none)") : known));
}

std::vector<std::uint64_t> margins_of(const PlacementSettings& placement, const Machine& machine) {
  constexpr int kMib = 20;
  std::vector<std::uint64_t> margins(machine.devices.size(), 0);
  const std::vector<int>& given = placement.fit_margins_mib;
  for (std::size_t d = 1; d < margins.size(); ++d) {
    const std::size_t i = given.size() == 1 ? 0 : d - 1;
    margins[d] = i < given.size() ? static_cast<std::uint64_t>(given[i]) << kMib : 0;
  }
  for (const auto& [gpu, mib] : placement.gpu_margins)
    if (margins.size() > 1) margins[gpu_of(gpu, machine)] = static_cast<std::uint64_t>(mib) << kMib;
  return margins;
}

/// Steps in which --fit chooses a context: whole blocks for every sequence, and 256 where both can be had.
int context_step(const Settings& settings, int n_seq) {
  constexpr int kStep = 256, kLongest = 4096;
  const int unit = n_seq > 1 && !settings.cache.unified ? n_seq * ggml::kKvBlockTokens : 1;
  const std::int64_t both = std::lcm<std::int64_t>(kStep, unit);
  return both <= kLongest ? static_cast<int>(both) : unit;
}

/// Plans one start: what the user said, or a change of it that is tried.
class Planner {
 public:
  Planner(const Settings& settings, int n_seq, PlannedRun& run)
      : settings_(settings),
        n_seq_(n_seq),
        run_(run),
        margins_(margins_of(settings.placement, *run.machine)),
        request_(offload_request(settings, run.context)),
        memory_(memory()) {}

  void plan() {
    const llama::PlacementRules given = run_.rules;
    const int n_ctx = run_.context.n_ctx;
    plan_with(given, n_ctx);
    if (!run_.fits) {
      // Better prompts as they were than no start.
      forget(given, n_ctx);
      staged_ = false;
      memory_ = memory();
      plan_with(given, n_ctx);
      run_.offload_note = "there is no room for its staging";
    }
    if (run_.fits) return;
    // A start with the change would do without staging too.
    find_change(given, n_ctx);
  }

 private:
  [[nodiscard]] llama::ContextMemory memory() {
    return llama::context_memory(*run_.outline, run_.machine->pointers(), run_.machine->descriptions, run_.context,
                                 [this](const llama::Plan& plan) { return offload_of(plan, run_.rules); });
  }

  /// What a context that obeys the plan does about prompts with weights in host memory.
  [[nodiscard]] llama::OpOffload offload_of(const llama::Plan& plan, const llama::PlacementRules& rules) const {
    if (!staged_) return {};
    const std::optional<llama::PromptOffload> found = llama::prompt_offload(run_.model, plan, rules, request_);
    return found ? found->offload : llama::OpOffload{};
  }

  void forget(const llama::PlacementRules& given, int n_ctx) {
    run_.rules = given;
    run_.context.n_ctx = n_ctx;
    run_.context.offload = {};
    run_.fit_notes.clear();
    run_.explanation.clear();
  }

  void plan_with(const llama::PlacementRules& given, int n_ctx) {
    llama::Fitted chosen = choose(given, n_ctx, !settings_.context.n_ctx.has_value());
    run_.placed = placed_with(chosen);
    run_.fits = llama::fits(run_.plan());
    run_.rules = std::move(chosen.rules);
    run_.context.n_ctx = chosen.n_ctx;
    run_.fit_notes = std::move(chosen.notes);
    run_.explanation = std::move(chosen.explanation);
    if (chosen.n_ctx != n_ctx)
      run_.fit_notes.push_back(strf("--fit: context %d instead of %d, so that %s; -c %d keeps it", chosen.n_ctx, n_ctx,
                                    run_.machine->devices.size() > 1 ? "more of the model is on GPUs" : "it fits",
                                    n_ctx));
    run_.prompt_offload = llama::prompt_offload(run_.model, run_.plan(), run_.rules, request_);
    run_.context.offload = offload_of(run_.plan(), run_.rules);
  }

  [[nodiscard]] llama::Fitted choose(const llama::PlacementRules& rules, int n_ctx, bool choose_context) const {
    if (!fit_is_on(settings_.placement.fit, rules)) return {rules, n_ctx, {}, {}};
    llama::FitRequest request;
    request.n_ctx = n_ctx;
    request.choose_context = choose_context;
    request.least_context = settings_.placement.fit_context;
    request.context_step = context_step(settings_, n_seq_);
    request.margins = margins_;
    return llama::fit(run_.model, run_.machine->descriptions, rules, memory_, request);
  }

  [[nodiscard]] llama::Placed placed_with(const llama::Fitted& chosen) const {
    llama::Placed placed = llama::place(run_.model, run_.machine->descriptions, chosen.rules);
    llama::add_context_use(memory_, chosen.n_ctx, placed.plan);
    return placed;
  }

  void find_change(const llama::PlacementRules& given, int n_ctx) {
    llama::ChangeRequest request;
    request.rules = given;
    request.n_ctx = run_.context.n_ctx;
    request.fits_itself = fit_is_on(settings_.placement.fit, given);
    request.plan_anew = [&](const llama::PlacementRules& rules, std::optional<int> context) {
      const bool open = !context && !settings_.context.n_ctx.has_value();
      llama::Placed placed = placed_with(choose(rules, context.value_or(n_ctx), open));
      return llama::fits(placed.plan) ? std::optional<llama::Plan>(std::move(placed.plan)) : std::nullopt;
    };
    run_.change = llama::smallest_change(run_.model, run_.plan(), memory_, request);
  }

  const Settings& settings_;
  int n_seq_;
  PlannedRun& run_;
  std::vector<std::uint64_t> margins_;
  llama::OffloadRequest request_;
  bool staged_ = true;  // prompts may be computed with weights that are sent
  llama::ContextMemory memory_;
};

/// Why a device cannot hold the cache; empty: it can.
std::string why_no_cache(const ggml::Device& device, const llama::ContextParams& context) {
  for (const ggml::DType type : {context.k_type, context.v_type})
    if (!device.supports_cache(type))
      return strf("%s has no kernels for a cache of type %s", device.name().c_str(),
                  std::string(ggml::type_info(type).id).c_str());
  if ((context.k_hadamard || context.v_hadamard) && !device.supports(ggml::Op::hadamard))
    return device.name() + " has no kernel for -khad and -vhad";
  return {};
}

/// What a card has no kernels for stays on the CPU, and is planned there.
void keep_cache_where_it_works(PlannedRun& run) {
  if (!run.rules.kv_offload || run.rules.n_gpu_layers.value_or(1) == 0) return;
  for (std::size_t d = 1; d < run.machine->devices.size(); ++d) {
    const std::string why = why_no_cache(*run.machine->devices[d], run.context);
    if (why.empty()) continue;
    run.rules.kv_offload = false;
    logf(LogLevel::warn, "the KV cache stays on the CPU: %s; f16 and q8_0 work on every device", why.c_str());
    return;
  }
}

/// What the log says of each device at the start.
void log_devices(const Machine& machine) {
  for (std::size_t d = 1; d < machine.devices.size(); ++d) {
    const std::string details = machine.devices[d]->details();
    logf(LogLevel::info, "Device %zu: %s, %s%s%s free", d - 1, machine.devices[d]->name().c_str(), details.c_str(),
         details.empty() ? "" : ", ", llama::size_text(machine.descriptions[d].free_bytes).c_str());
  }
}

/// Why -ngl does nothing; empty: there are GPUs, or it was not given.
std::string cpu_only_text(const PlannedRun& run) {
  if (run.machine->devices.size() > 1 || run.rules.n_gpu_layers.value_or(0) <= 0) return {};
  return "the CPU computes everything: " + run.machine->why_no_gpu;
}

/// What to know where a sequence may grow longer than the model was trained for; empty: it may not.
std::string long_context_text(const PlannedRun& run, const Settings& settings) {
  const int trained = run.outline->info().n_ctx_train;
  const double stretch = std::max(1.0, 1.0 / static_cast<double>(settings.context.rope.freq_scale.value_or(1.0f)));
  const int n_seq = settings.cache.unified ? 1 : run.context.n_seq_max;
  const int each = run.context.n_ctx / n_seq;
  const double limit = std::ceil(trained * stretch / ggml::kKvBlockTokens) * ggml::kKvBlockTokens;
  if (trained <= 0 || each <= limit) return {};
  std::string text = strf("the context of %d tokens%s is longer than the %d that the model was trained with", each,
                          n_seq > 1 ? strf(" for each of %d sequences", n_seq).c_str() : "", trained);
  if (stretch > 1.0) text += strf(", times --rope-scale %g", stretch);
  text += ": what lies beyond them is read badly; use a smaller -c";
  if (run.outline->info().is_encoder) return text;
  const double wanted = std::ceil(10.0 * each / trained) / 10.0;
  return text + strf(", or stretch them with --rope-scaling yarn --rope-scale %g", wanted);
}

}  // namespace

PlannedRun plan_run(const Settings& settings, int n_seq, std::shared_ptr<const Machine> machine) {
  PlannedRun run;
  run.machine = machine != nullptr ? std::move(machine) : std::make_shared<const Machine>(open_machine(settings));
  run.rules = rules_of(settings);
  run.explains = settings.placement.fit == Fit::explain;
  llama::check_buffer_names(run.rules, run.machine->descriptions);
  check_lists(settings.placement, *run.machine);
  run.outline = llama::Model::outline(model_params(settings));
  run.model = llama::plan_model(*run.outline);
  run.context = context_params(settings, run.outline->info(), n_seq);
  keep_cache_where_it_works(run);
  if (run.machine->trace != nullptr && !run.machine->virtual_time) run.context.trace = &run.machine->trace->trace();
  Planner(settings, n_seq, run).plan();
  if (std::string line = long_context_text(run, settings); !line.empty())
    run.placed.warnings.push_back(std::move(line));
  return run;
}

std::string flags_of(const PlannedRun& run, const Settings& settings) {
  std::string text = llama::flags_text(run.rules, run.context.n_ctx, run.plan().devices.size());
  if (settings.placement.devices) {
    std::string names;
    for (const std::string& name : *settings.placement.devices) names += (names.empty() ? "" : ",") + name;
    text += " -dev " + (names.empty() ? "none" : names);
  }
  if (settings.model.load_mode != LoadMode::mmap)
    text += settings.model.load_mode == LoadMode::direct_io ? " -dio" : " --no-mmap";
  const Settings defaults;
  if (settings.context.n_batch != defaults.context.n_batch) text += strf(" -b %d", settings.context.n_batch);
  if (settings.context.n_ubatch != defaults.context.n_ubatch) text += strf(" -ub %d", settings.context.n_ubatch);
  const auto add_type = [&](const char* flag, ggml::DType type, ggml::DType usual) {
    if (type != usual) text += strf(" %s %s", flag, std::string(ggml::type_info(type).id).c_str());
  };
  add_type("-ctk", settings.cache.type_k, defaults.cache.type_k);
  add_type("-ctv", settings.cache.type_v, defaults.cache.type_v);
  return text;
}

namespace {

/// "steps of 776 tokens and more", as the rule counts them.
std::string from_text(const llama::PromptOffload& offload) {
  return strf("%s of %d tokens and more", offload.offload.by_ubatch ? "micro-batches" : "steps", offload.tokens);
}

/// Why they are not sent; empty: they are.
std::string why_not_sent(const PlannedRun& run) {
  const llama::PromptOffload& offload = *run.prompt_offload;
  if (!run.offload_note.empty()) return run.offload_note;
  const int most =
      offload.offload.by_ubatch ? std::min(run.context.n_ubatch, run.context.n_batch) : run.context.n_batch;
  return offload.tokens > most ? strf("-%s %d is less", offload.offload.by_ubatch ? "ub" : "b", most) : std::string();
}

}  // namespace

std::string prompt_offload_text(const PlannedRun& run) {
  if (!run.prompt_offload) return {};
  const llama::PromptOffload& offload = *run.prompt_offload;
  const llama::PlanDevice& device = run.plan().devices[static_cast<std::size_t>(offload.device.v)];
  const std::string what = llama::size_text(offload.bytes) + " of weights in host memory";
  if (offload.tokens == 0)
    return strf("op offload: sending %s to %s is never faster than computing with them on the CPU", what.c_str(),
                device.name.c_str());
  const std::string link = offload.has_profile ? strf("%s (%.0f GB/s)", device.name.c_str(), device.link / 1e9)
                                               : device.name + " (of unknown speed: --device-profile measures it)";
  if (const std::string why = why_not_sent(run); !why.empty())
    return strf("op offload: off, %s; %s would be faster with %s sent to %s", why.c_str(), from_text(offload).c_str(),
                what.c_str(), link.c_str());
  return strf("op offload: %s are computed with %s sent to %s layer by layer, through %s of staging",
              from_text(offload).c_str(), what.c_str(), link.c_str(),
              llama::size_text(run.plan().use[static_cast<std::size_t>(offload.device.v)].staging).c_str());
}

std::string_view source_name(llama::SpeedSource source) {
  constexpr std::string_view kNames[] = {"assumed", "given", "measured"};
  return kNames[static_cast<std::size_t>(source)];
}

std::string speeds_text(const PlannedRun& run, const Settings& settings) {
  std::string text;
  bool any_measured = false;
  for (const llama::PlanDevice& device : run.plan().devices) {
    text += strf("%s%s %.0f GB/s", text.empty() ? "speeds: " : ", ", device.name.c_str(), device.bandwidth / 1e9);
    if (device.link > 0.0) text += strf(" and %.0f GB/s to the host", device.link / 1e9);
    text += " (" + std::string(source_name(device.speeds)) + ")";
    any_measured |= device.speeds == llama::SpeedSource::measured;
  }
  return any_measured ? text + "; " + settings.placement.device_profile : text;
}

std::string shortfall_text(const PlannedRun& run) {
  std::string text;
  const llama::Plan& plan = run.plan();
  for (std::size_t d = 0; d < plan.devices.size(); ++d) {
    const std::uint64_t lacking = llama::shortfall(plan, d);
    if (lacking == 0) continue;
    const std::uint64_t free = plan.devices[d].free_bytes;
    text += strf("%s%s needs %s and has %s free: %s too little", text.empty() ? "" : "; ", plan.devices[d].name.c_str(),
                 llama::size_text(free + lacking).c_str(), llama::size_text(free).c_str(),
                 llama::size_text(lacking).c_str());
  }
  return text;
}

std::vector<std::string> idle_flags(const PlannedRun& run) {
  std::vector<std::string> lines = run.placed.idle;
  if (std::string line = cpu_only_text(run); !line.empty()) lines.push_back(std::move(line));
  lines.insert(lines.end(), run.placed.warnings.begin(), run.placed.warnings.end());
  return lines;
}

void announce(const PlannedRun& run) {
  log_devices(*run.machine);
  for (const std::string& line : run.placed.warnings) logf(LogLevel::warn, "%s", line.c_str());
  const bool any_gpu = run.machine->devices.size() > 1;
  const bool may_move = any_gpu || !run.rules.tensor_rules.empty();
  for (const std::string& line : may_move ? run.placed.notes : run.placed.idle)
    logf(LogLevel::info, "%s", line.c_str());
  for (const std::string& line : run.fit_notes) logf(LogLevel::info, "%s", line.c_str());
  if (run.explains)
    for (const std::string& line : run.explanation) logf(LogLevel::info, "%s", line.c_str());
  if (const std::string line = cpu_only_text(run); !line.empty()) logf(LogLevel::info, "%s", line.c_str());
  for (const llama::TensorPlan& tensor : run.plan().tensors) {
    if (!tensor.rule.starts_with("-ot") || !ggml::log_enabled(LogLevel::debug)) continue;
    logf(LogLevel::debug, "tensor %s (%s %s) on %s by %s", tensor.name.c_str(),
         llama::size_text(tensor.places.front().bytes).c_str(), std::string(ggml::type_info(tensor.type).name).c_str(),
         run.plan().devices[static_cast<std::size_t>(tensor.places.front().device.v)].name.c_str(),
         tensor.rule.c_str());
  }
  if (run.fits) return;
  throw DoesNotFit(ErrorCode::out_of_memory, "the model does not fit: " + shortfall_text(run),
                   run.change.empty() ? "no single change of the placement would do; a smaller model or -ub may"
                                      : "it would fit with " + run.change);
}

}  // namespace common
