#include <algorithm>

#include "ggml/log.h"
#include "llama/placement.h"
#include "placement/expert_blocks.h"

namespace llama {

using ggml::strf;

namespace {

/// Bytes of the host's weights that are pages of a file.
std::uint64_t mapped_bytes(const Plan& plan) {
  std::uint64_t bytes = 0;
  for (const TensorPlan& tensor : plan.tensors)
    for (const TensorPlan::Place& place : tensor.places)
      if (place.device.v == 0 && place.kind == ggml::BufferKind::mapping) bytes += place.bytes;
  return bytes;
}

/// Tries changes without measuring the context anew: what it needs beside the cache hardly depends on them.
class ChangeSearch {
 public:
  ChangeSearch(const PlanModel& model, const Plan& plan, const ContextMemory& memory)
      : model_(model), plan_(plan), memory_(memory) {}

  [[nodiscard]] bool fits_with(const PlacementRules& rules, int n_ctx) const {
    Plan plan = place(model_, plan_.devices, rules).plan;
    for (std::size_t d = 0; d < plan.use.size(); ++d) {
      const std::uint64_t weights = plan.use[d].weights;
      plan.use[d] = plan_.use[d];
      plan.use[d].weights = weights;
      plan.use[d].kv = 0;
    }
    const std::vector<std::uint64_t> kv = memory_.kv_per_layer(n_ctx);
    for (std::size_t i = 0; i < kv.size(); ++i) plan.use[static_cast<std::size_t>(plan.kv_device[i].v)].kv += kv[i];
    return fits(plan);
  }

  /// The least n in [low, high] for which `works`, which stays true from there on; high + 1: none.
  template <class Works>
  static int least(int low, int high, const Works& works) {
    int end = high + 1;
    while (low < end) {
      const int middle = low + (end - low) / 2;
      if (works(middle))
        end = middle;
      else
        low = middle + 1;
    }
    return end;
  }

 private:
  const PlanModel& model_;
  const Plan& plan_;
  const ContextMemory& memory_;
};

int count_expert_blocks(const PlanModel& model) {
  std::vector<bool> seen(static_cast<std::size_t>(model.n_layer), false);
  for (const PlanTensor& tensor : model.tensors)
    if (tensor.expert) seen[static_cast<std::size_t>(tensor.layer)] = true;
  return static_cast<int>(std::count(seen.begin(), seen.end(), true));
}

}  // namespace

void add_context_use(const ContextMemory& memory, int n_ctx, Plan& plan) {
  const std::vector<DeviceUse> beside = memory.beside(plan, n_ctx);
  for (std::size_t d = 0; d < plan.use.size(); ++d) {
    plan.use[d].kv = 0;
    plan.use[d].weights += beside[d].weights;
    plan.use[d].arenas = beside[d].arenas;
    plan.use[d].staging = beside[d].staging;
    plan.use[d].overhead = beside[d].overhead;
  }
  const std::vector<std::uint64_t> kv = memory.kv_per_layer(n_ctx);
  for (std::size_t i = 0; i < kv.size(); ++i) plan.use[static_cast<std::size_t>(plan.kv_device[i].v)].kv += kv[i];
}

std::uint64_t shortfall(const Plan& plan, std::size_t device) {
  std::uint64_t needed = plan.use[device].total();
  if (device == 0) needed -= mapped_bytes(plan);
  const std::uint64_t free = plan.devices[device].free_bytes;
  return needed > free ? needed - free : 0;
}

bool fits(const Plan& plan) {
  for (std::size_t d = 0; d < plan.use.size(); ++d)
    if (shortfall(plan, d) > 0) return false;
  return true;
}

std::string smallest_change(const PlanModel& model, const Plan& plan, const PlacementRules& rules,
                            const ContextMemory& memory, int n_ctx) {
  const ChangeSearch search(model, plan, memory);
  PlacementRules changed = rules;
  const int n_blocks = count_expert_blocks(model);
  if (!rules.cpu_moe && rules.n_cpu_moe < n_blocks) {
    const int n = ChangeSearch::least(rules.n_cpu_moe + 1, n_blocks, [&](int n_cpu_moe) {
      changed.n_cpu_moe = n_cpu_moe;
      return search.fits_with(changed, n_ctx);
    });
    if (n <= n_blocks) return strf("--n-cpu-moe %d", n);
    changed.n_cpu_moe = rules.n_cpu_moe;
  }
  const bool has_cpu_experts = rules.cpu_moe || rules.n_cpu_moe > 0;
  for (const bool with_experts_out : {false, true}) {
    if (with_experts_out && (n_blocks == 0 || has_cpu_experts)) continue;
    changed.cpu_moe = rules.cpu_moe || with_experts_out;
    const int most = std::min(rules.n_gpu_layers.value_or(kAllLayers), model.n_layer + 1);
    // Fewer layers on the devices: counted from the highest number down.
    const int fewer = ChangeSearch::least(1, most, [&](int n) {
      changed.n_gpu_layers = most - n;
      return search.fits_with(changed, n_ctx);
    });
    if (fewer <= most) return strf("%s-ngl %d", with_experts_out ? "--cpu-moe " : "", most - fewer);
  }
  constexpr int kStep = 256;
  const int steps = n_ctx / kStep;
  const int less =
      ChangeSearch::least(1, steps - 1, [&](int n) { return search.fits_with(rules, (steps - n) * kStep); });
  if (steps > 1 && less < steps) return strf("-c %d", (steps - less) * kStep);
  if (!rules.mapped) {
    changed = rules;
    changed.mapped = true;
    if (search.fits_with(changed, n_ctx)) return "--mmap";
  }
  return {};
}

}  // namespace llama
