#include "common/setup/planned_run.h"

#include <algorithm>
#include <utility>

#include "common/setup/setup.h"
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
  rules.main_gpu = given.main_gpu.value_or(0);
  rules.kv_offload = given.kv_offload;
  rules.mapped = settings.model.load_mode == LoadMode::mmap;
  return rules;
}

bool fit_is_on(const PlacementSettings& placement) {
  if (placement.fit != Fit::automatic) return placement.fit != Fit::off;
  return !placement.n_gpu_layers && placement.tensor_rules.empty();
}

std::vector<std::uint64_t> margins_of(const PlacementSettings& placement, std::size_t n_devices) {
  constexpr int kMib = 20;
  std::vector<std::uint64_t> margins(n_devices, 0);
  const std::vector<int>& given = placement.fit_margins_mib;
  for (std::size_t d = 1; d < n_devices; ++d) {
    const std::size_t i = given.size() == 1 ? 0 : d - 1;
    margins[d] = i < given.size() ? static_cast<std::uint64_t>(given[i]) << kMib : 0;
  }
  for (const auto& [gpu, mib] : placement.gpu_margins) {
    if (static_cast<std::size_t>(gpu) + 1 >= n_devices)
      throw Error(ErrorCode::invalid_argument,
                  strf("error: -gfm: there is no GPU %d; there are %zu", gpu, n_devices - 1));
    margins[static_cast<std::size_t>(gpu) + 1] = static_cast<std::uint64_t>(mib) << kMib;
  }
  return margins;
}

void apply_fit(const Settings& settings, const llama::ContextMemory& memory, PlannedRun& run) {
  const PlacementSettings& placement = settings.placement;
  llama::FitRequest request;
  request.n_ctx = run.context.n_ctx;
  request.choose_context = !settings.context.n_ctx.has_value();
  request.least_context = placement.fit_context;
  request.margins = margins_of(placement, run.machine->devices.size());
  llama::Fitted fitted = llama::fit(run.model, run.machine->descriptions, run.rules, memory, request);
  if (fitted.n_ctx != run.context.n_ctx)
    run.explanation.push_back(strf("--fit: context %d instead of %d, so that more of the model is on the GPUs",
                                   fitted.n_ctx, run.context.n_ctx));
  run.context.n_ctx = fitted.n_ctx;
  run.rules = std::move(fitted.rules);
  run.explanation.insert(run.explanation.end(), fitted.explanation.begin(), fitted.explanation.end());
}

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

}  // namespace

PlannedRun plan_run(const Settings& settings, int n_seq, std::shared_ptr<const Machine> machine) {
  PlannedRun run;
  run.machine = machine != nullptr ? std::move(machine) : std::make_shared<const Machine>(open_machine(settings));
  run.rules = rules_of(settings);
  run.explains = settings.placement.fit == Fit::explain;
  llama::check_buffer_names(run.rules, run.machine->descriptions);
  run.outline = llama::Model::outline(model_params(settings));
  run.model = llama::plan_model(*run.outline);
  run.context = context_params(settings, run.outline->info(), n_seq);
  keep_cache_where_it_works(run);
  const llama::ContextMemory memory =
      llama::context_memory(*run.outline, run.machine->pointers(), run.machine->descriptions, run.context);
  if (fit_is_on(settings.placement)) apply_fit(settings, memory, run);
  run.placed = llama::place(run.model, run.machine->descriptions, run.rules);
  llama::add_context_use(memory, run.context.n_ctx, run.placed.plan);
  run.fits = llama::fits(run.plan());
  if (!run.fits) run.change = llama::smallest_change(run.model, run.plan(), run.rules, memory, run.context.n_ctx);
  return run;
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

void announce(const PlannedRun& run) {
  log_devices(*run.machine);
  for (const std::string& line : run.placed.warnings) logf(LogLevel::warn, "%s", line.c_str());
  const bool any_gpu = run.machine->devices.size() > 1;
  if (any_gpu || !run.rules.tensor_rules.empty())
    for (const std::string& line : run.placed.notes) logf(LogLevel::info, "%s", line.c_str());
  if (run.explains)
    for (const std::string& line : run.explanation) logf(LogLevel::info, "%s", line.c_str());
  if (!any_gpu && run.rules.n_gpu_layers.value_or(0) > 0)
    logf(LogLevel::info, "the CPU computes everything: %s", run.machine->why_no_gpu.c_str());
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
