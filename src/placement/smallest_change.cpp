#include <algorithm>
#include <utility>

#include "ggml/log.h"
#include "llama/placement.h"
#include "placement/context_use.h"
#include "placement/expert_blocks.h"
#include "placement/step_model.h"

namespace llama {

using ggml::strf;

namespace {

/// A change that was planned with and fits.
struct Found {
  std::string flags;
  double seconds = 0;  // of a decode step
};

/// Looks for the changes that make a plan fit.
class ChangeSearch {
 public:
  ChangeSearch(const PlanModel& model, const Plan& plan, const ContextMemory& memory, const ChangeRequest& request)
      : model_(model),
        plan_(plan),
        memory_(memory),
        request_(request),
        beside_(memory.beside(plan, request.n_ctx)),
        n_expert_blocks_(static_cast<int>(expert_blocks(model).size())) {}

  std::string run() {
    // What moves weights or reads them otherwise leaves the user all that was asked for; less context does not.
    try_mapping();
    try_experts();
    try_layers(false);
    if (n_expert_blocks_ > 0 && !has_cpu_experts()) try_layers(true);
    try_rules();
    try_cache();
    if (found_.empty()) try_context(false);
    if (found_.empty() && n_expert_blocks_ > 0 && !has_cpu_experts()) try_context(true);
    const auto best = std::min_element(found_.begin(), found_.end(),
                                       [](const Found& a, const Found& b) { return a.seconds < b.seconds; });
    return best == found_.end() ? std::string() : best->flags;
  }

 private:
  [[nodiscard]] bool has_cpu_experts() const { return request_.rules.cpu_moe || request_.rules.n_cpu_moe > 0; }

  /// Tries a change; `context`: what -c would say.
  bool verify(const std::string& flags, const PlacementRules& rules, std::optional<int> context = std::nullopt) {
    const std::optional<Plan> plan = request_.plan_anew(rules, context);
    if (!plan) return false;
    const int depth = std::min(context.value_or(request_.n_ctx), kModelledDepth);
    found_.push_back({flags, decode_seconds(model_, *plan, memory_.kv_per_layer(depth))});
    return true;
  }

  /// Without measuring the context anew: what it needs beside the cache hardly depends on the change.
  [[nodiscard]] bool roughly_fits(const PlacementRules& rules, int n_ctx) const {
    Plan plan = place(model_, plan_.devices, rules).plan;
    add_use(memory_.kv_per_layer(n_ctx), beside_, plan);
    return fits(plan);
  }

  /// Verifies the least n in [low, high] that fits, `change(n)` being the flags and the rules; where the rough answer
  /// was too low, larger ones in growing steps.
  template <class Change>
  void try_least(int low, int high, const Change& change) {
    int n = low;
    if (!request_.fits_itself) {
      int end = high + 1;
      while (n < end) {
        const int middle = n + (end - n) / 2;
        if (roughly_fits(change(middle).second, request_.n_ctx))
          end = middle;
        else
          n = middle + 1;
      }
    }
    for (int step = 1; n <= high; step *= 2) {
      const auto [flags, rules] = change(n);
      if (verify(flags, rules)) return;
      if (n == high) return;
      n = std::min(n + step, high);
    }
  }

  void try_mapping() {
    if (request_.rules.mapped || shortfall(plan_, 0) == 0) return;
    PlacementRules rules = request_.rules;
    rules.mapped = true;
    verify("--mmap", rules);
  }

  /// More experts in host memory; --fit has seen to that itself.
  void try_experts() {
    if (request_.fits_itself || request_.rules.cpu_moe) return;
    try_least(request_.rules.n_cpu_moe + 1, n_expert_blocks_, [&](int n) {
      PlacementRules rules = request_.rules;
      rules.n_cpu_moe = n;
      return std::pair(n_cpu_moe_text(n, rules.cpu_moe_blocks), rules);
    });
  }

  /// Fewer layers on the devices: counted from the highest number down.
  void try_layers(bool with_experts_out) {
    if (request_.fits_itself && !request_.rules.n_gpu_layers) return;
    const int most = std::min(request_.rules.n_gpu_layers.value_or(kAllLayers), model_.n_layer + 1);
    try_least(1, most, [&](int fewer) {
      PlacementRules rules = request_.rules;
      rules.n_gpu_layers = most - fewer;
      rules.cpu_moe = rules.cpu_moe || with_experts_out;
      return std::pair(strf("%s-ngl %d", with_experts_out ? "--cpu-moe " : "", most - fewer), rules);
    });
  }

  /// Rules that put something where there is no room.
  void try_rules() {
    for (std::size_t i = 0; i < request_.rules.tensor_rules.size(); ++i) {
      const BufferRule& rule = request_.rules.tensor_rules[i];
      if (rule.buffer == plan_.devices.front().name) continue;
      PlacementRules rules = request_.rules;
      rules.tensor_rules[i].buffer = plan_.devices.front().name;
      verify("-ot " + shell_quoted(rule.pattern.text() + "=" + plan_.devices.front().name) + " in place of " +
                 shell_quoted(rule.pattern.text() + "=" + rule.buffer),
             rules);
    }
  }

  void try_cache() {
    if (!request_.rules.kv_offload) return;
    PlacementRules rules = request_.rules;
    rules.kv_offload = false;
    if (verify("-nkvo", rules) || n_expert_blocks_ == 0 || has_cpu_experts()) return;
    rules.cpu_moe = true;
    verify("--cpu-moe -nkvo", rules);
  }

  void try_context(bool with_experts_out) {
    PlacementRules rules = request_.rules;
    rules.cpu_moe = rules.cpu_moe || with_experts_out;
    constexpr int kStep = 256;
    const auto works = [&](int steps) {
      return request_.fits_itself ? request_.plan_anew(rules, steps * kStep).has_value()
                                  : roughly_fits(rules, steps * kStep);
    };
    int low = 0, high = (request_.n_ctx + kStep - 1) / kStep;  // low works or is none at all; high does not
    while (low + 1 < high) {
      const int middle = low + (high - low) / 2;
      (works(middle) ? low : high) = middle;
    }
    for (int less = 1; low > 0; low -= less, less *= 2)
      if (verify(strf("%s-c %d", with_experts_out ? "--cpu-moe " : "", low * kStep), rules, low * kStep)) return;
  }

  const PlanModel& model_;
  const Plan& plan_;
  const ContextMemory& memory_;
  const ChangeRequest& request_;
  std::vector<DeviceUse> beside_;
  int n_expert_blocks_;
  std::vector<Found> found_;
};

}  // namespace

std::string smallest_change(const PlanModel& model, const Plan& plan, const ContextMemory& memory,
                            const ChangeRequest& request) {
  return ChangeSearch(model, plan, memory, request).run();
}

}  // namespace llama
