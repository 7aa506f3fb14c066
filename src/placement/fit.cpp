#include <algorithm>
#include <cmath>
#include <numeric>

#include "ggml/log.h"
#include "llama/placement.h"
#include "placement/assignment.h"
#include "placement/layer_devices.h"
#include "placement/step_model.h"

namespace llama {

using ggml::DeviceId;
using ggml::strf;

namespace {

constexpr int kContextStep = 256;
// More than any device has, and small enough that sums do not overflow.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

bool has_split(const PlacementRules& rules) {
  return std::any_of(rules.tensor_split.begin(), rules.tensor_split.end(), [](float share) { return share > 0.0F; });
}

/// What of one layer can still be placed: its body, and its routed experts.
struct LayerUnits {
  std::vector<std::size_t> body, experts;  // tensors
};

/// One --fit: the units, what is fixed, and the way back to rules.
class Fitter {
 public:
  Fitter(const PlanModel& model, const std::vector<PlanDevice>& devices, const PlacementRules& rules,
         const ContextMemory& memory, const FitRequest& request)
      : model_(model), devices_(devices), rules_(rules), memory_(memory), request_(request) {}

  Fitted run() {
    base_ = place(model_, devices_, rules_);
    collect_units();
    int n_ctx = choose_context();
    if (devices_.size() == 1) return {rules_, n_ctx, {}};
    measure(base_.plan, n_ctx);
    Assignment best;
    // What the context needs beside the cache depends a little on the placement: measured again, until it fits.
    constexpr int kMostRounds = 4;
    for (int round = 0; round < kMostRounds; ++round) {
      Assignment found = solve_rules(n_ctx, false);
      if (found.empty()) break;
      best = std::move(found);
      Placed placed = place(model_, devices_, rules_from(best));
      measure(placed.plan, n_ctx);
      add_context_use(memory_, n_ctx, placed.plan);
      if (leaves_margins(placed.plan)) break;
      n_ctx = choose_context();
    }
    Fitted fitted{best.empty() ? rules_ : rules_from(best), n_ctx, {}};
    explain(fitted, best);
    return fitted;
  }

 private:
  void collect_units();
  void measure(const Plan& plan, int n_ctx);
  [[nodiscard]] int choose_context();
  [[nodiscard]] std::uint64_t margin(std::size_t device) const {
    return device < request_.margins.size() ? request_.margins[device] : 0;
  }
  [[nodiscard]] bool leaves_margins(const Plan& plan) const;
  [[nodiscard]] Assignment solve_rules(int n_ctx, bool without_cpu);
  [[nodiscard]] AssignmentProblem problem_for(int n_ctx, bool without_cpu, int n_gpu_layers) const;
  [[nodiscard]] AssignmentProblem::Unit unit_of(const std::vector<std::size_t>& tensors, bool ordered) const;
  void restrict_bodies(AssignmentProblem& problem, int n_gpu_layers, bool without_cpu) const;
  [[nodiscard]] std::vector<std::uint64_t> capacities(int n_ctx) const;
  [[nodiscard]] PlacementRules rules_from(const Assignment& assignment) const;
  void explain(Fitted& fitted, const Assignment& assignment) const;

  const PlanModel& model_;
  const std::vector<PlanDevice>& devices_;
  const PlacementRules& rules_;
  const ContextMemory& memory_;
  const FitRequest& request_;

  Placed base_;
  std::vector<LayerUnits> layers_;     // the head is the last
  std::vector<bool> fixed_;            // per tensor
  std::vector<std::uint64_t> beside_;  // per device: the most seen
};

void Fitter::collect_units() {
  layers_.resize(static_cast<std::size_t>(model_.n_layer) + 1);
  fixed_.resize(model_.tensors.size(), true);
  for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
    const PlanTensor& tensor = model_.tensors[i];
    const std::string& rule = base_.plan.tensors[i].rule;
    if (rule.starts_with("-ot") || rule.starts_with("--")) continue;
    if (tensor.use == TensorUse::input || tensor.use == TensorUse::every_layer) continue;
    fixed_[i] = false;
    LayerUnits& layer =
        tensor.use == TensorUse::layer ? layers_[static_cast<std::size_t>(tensor.layer)] : layers_.back();
    (tensor.expert ? layer.experts : layer.body).push_back(i);
  }
}

void Fitter::measure(const Plan& plan, int n_ctx) {
  beside_.resize(devices_.size(), 0);
  const std::vector<DeviceUse> beside = memory_.beside(plan, n_ctx);
  for (std::size_t d = 0; d < devices_.size(); ++d) beside_[d] = std::max(beside_[d], beside[d].total());
}

bool Fitter::leaves_margins(const Plan& plan) const {
  for (std::size_t d = 1; d < devices_.size(); ++d)
    if (plan.use[d].total() > 0 && plan.use[d].total() + margin(d) > devices_[d].free_bytes) return false;
  return shortfall(plan, 0) == 0;
}

std::vector<std::uint64_t> Fitter::capacities(int n_ctx) const {
  std::vector<std::uint64_t> fixed(devices_.size(), 0);
  for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
    for (const TensorPlan::Place& place : base_.plan.tensors[i].places) {
      const bool counts = place.device.v != 0 || place.kind != ggml::BufferKind::mapping;
      if (fixed_[i] && counts) fixed[static_cast<std::size_t>(place.device.v)] += place.bytes;
    }
  }
  if (!rules_.kv_offload)
    for (const std::uint64_t bytes : memory_.kv_per_layer(n_ctx)) fixed[0] += bytes;
  std::vector<std::uint64_t> capacity(devices_.size(), 0);
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    const std::uint64_t taken = fixed[d] + beside_[d] + margin(d);
    if (devices_[d].free_bytes > taken) capacity[d] = devices_[d].free_bytes - taken;
  }
  return capacity;
}

AssignmentProblem::Unit Fitter::unit_of(const std::vector<std::size_t>& tensors, bool ordered) const {
  AssignmentProblem::Unit unit;
  unit.ordered = ordered;
  unit.bytes.assign(devices_.size(), 0);
  unit.seconds.assign(devices_.size(), 0.0);
  for (const std::size_t i : tensors) {
    const PlanTensor& tensor = model_.tensors[i];
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      std::uint64_t bytes = devices_[d].weight_bytes ? devices_[d].weight_bytes(tensor.type, tensor.shape) : 0;
      if (bytes == 0) bytes = tensor.bytes;
      constexpr std::uint64_t kAlign = 256;
      if (d > 0) bytes = (bytes + kAlign - 1) / kAlign * kAlign;
      // Pages of the file take no memory that could run out, and a tied head on the CPU is the embedding itself.
      const bool free = d == 0 && (rules_.mapped || tensor.use == TensorUse::input_and_head);
      if (!free) unit.bytes[d] += bytes;
      if (devices_[d].bandwidth > 0.0)
        unit.seconds[d] += read_share(model_, tensor) * static_cast<double>(bytes) / devices_[d].bandwidth;
    }
  }
  return unit;
}

/// What -ngl, -ts, -sm and -mg leave open of where bodies and head may be.
void Fitter::restrict_bodies(AssignmentProblem& problem, int n_gpu_layers, bool without_cpu) const {
  PlacementRules rules = rules_;
  rules.n_gpu_layers = n_gpu_layers;
  const std::vector<DeviceId> exact = layer_devices(model_.n_layer, devices_, rules);
  const bool is_exact = has_split(rules_) || rules_.split_mode == SplitMode::none;
  std::size_t layer = 0;
  for (AssignmentProblem::Unit& unit : problem.units) {
    const DeviceId wanted = exact[std::min(layer, exact.size() - 1)];
    if (unit.ordered) ++layer;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const bool is_cpu = d == 0;
      bool allowed = !(is_cpu && without_cpu && devices_.size() > 1);
      if (unit.ordered) {
        if (rules_.n_gpu_layers || has_split(rules_)) allowed = allowed && is_cpu == (wanted.v == 0);
        if (is_exact && !is_cpu) allowed = allowed && wanted == DeviceId(static_cast<int>(d));
      }
      if (rules_.main_gpu < 0 && !is_cpu) allowed = false;
      if (rules_.split_mode == SplitMode::none && !is_cpu && static_cast<int>(d) != rules_.main_gpu + 1)
        allowed = false;
      if (!allowed) unit.seconds[d] = AssignmentProblem::kForbidden;
    }
  }
}

AssignmentProblem Fitter::problem_for(int n_ctx, bool without_cpu, int n_gpu_layers) const {
  AssignmentProblem problem;
  problem.capacity = capacities(n_ctx);
  problem.crossing_seconds = kCrossingSeconds;
  const std::vector<std::uint64_t> kv = memory_.kv_per_layer(n_ctx);
  const std::vector<std::uint64_t> kv_read = memory_.kv_per_layer(std::min(n_ctx, kModelledDepth));
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    AssignmentProblem::Unit body = unit_of(layers_[i].body, true);
    for (std::size_t d = 0; i < kv.size() && rules_.kv_offload && d < devices_.size(); ++d) {
      body.bytes[d] += kv[i];
      if (devices_[d].bandwidth > 0.0) body.seconds[d] += static_cast<double>(kv_read[i]) / devices_[d].bandwidth;
    }
    problem.units.push_back(std::move(body));
    if (!layers_[i].experts.empty()) problem.units.push_back(unit_of(layers_[i].experts, false));
  }
  restrict_bodies(problem, n_gpu_layers, without_cpu);
  return problem;
}

Assignment Fitter::solve_rules(int n_ctx, bool without_cpu) {
  if (!has_split(rules_) || rules_.n_gpu_layers) {
    const int n_gpu_layers = rules_.n_gpu_layers.value_or(kAllLayers);
    Assignment on_devices = solve(problem_for(n_ctx, true, n_gpu_layers));
    if (without_cpu) return on_devices;
    // Where all fits on the devices the search that may use the CPU too can still miss it.
    const AssignmentProblem problem = problem_for(n_ctx, false, n_gpu_layers);
    Assignment anywhere = solve(problem);
    if (on_devices.empty()) return anywhere;
    return anywhere.empty() || step_seconds(problem, on_devices) <= step_seconds(problem, anywhere) ? on_devices
                                                                                                    : anywhere;
  }
  // With -ts a number of layers decides where each of them is: as many as fit.
  for (int n = model_.n_layer + 1; n >= 0; --n) {
    Assignment found = solve(problem_for(n_ctx, without_cpu, n));
    if (!found.empty()) return found;
  }
  return {};
}

/// Context first, as users of --fit expect: all of it where everything then fits on the devices, else less of it, down
/// to the least; only then are layers moved out.
int Fitter::choose_context() {
  if (!request_.choose_context) return request_.n_ctx;
  const int least = std::min(request_.least_context, request_.n_ctx);
  // What is needed beside the cache hardly depends on the context, and grows with it.
  measure(base_.plan, request_.n_ctx);
  const auto all_fits = [&](int n_ctx) {
    if (devices_.size() == 1) {
      Plan plan = base_.plan;
      add_context_use(memory_, n_ctx, plan);
      return fits(plan);
    }
    return !solve_rules(n_ctx, true).empty();
  };
  if (all_fits(request_.n_ctx)) return request_.n_ctx;
  int low = (least + kContextStep - 1) / kContextStep, high = request_.n_ctx / kContextStep;
  if (!all_fits(low * kContextStep)) return std::min(low * kContextStep, request_.n_ctx);
  while (low + 1 < high) {
    const int middle = low + (high - low) / 2;
    (all_fits(middle * kContextStep) ? low : high) = middle;
  }
  return low * kContextStep;
}

PlacementRules Fitter::rules_from(const Assignment& assignment) const {
  PlacementRules rules = rules_;
  std::vector<int> counts(devices_.size(), 0);
  std::vector<std::vector<int>> experts(devices_.size());
  int body = 0, layer = -1;
  std::size_t u = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    body = assignment[u++];
    ++layer;
    ++counts[static_cast<std::size_t>(body)];
    if (layers_[i].experts.empty()) continue;
    const int device = assignment[u++];
    if (device != body) experts[static_cast<std::size_t>(device)].push_back(layer);
  }
  if (!rules.n_gpu_layers) rules.layer_origin = "--fit";
  rules.n_gpu_layers = model_.n_layer + 1 - counts[0];
  if (devices_.size() > 2 && rules.split_mode == SplitMode::layer && !has_split(rules_))
    rules.tensor_split.assign(counts.begin() + 1, counts.end());
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    if (experts[d].empty()) continue;
    std::string blocks;
    for (const int block : experts[d]) blocks += (blocks.empty() ? "" : "|") + std::to_string(block);
    rules.tensor_rules.push_back(
        {NamePattern::compile(R"(blk\.()" + blocks + R"()\.ffn_(up|down|gate_up|gate)_(ch|)exps)").take(),
         devices_[d].name, "--fit"});
  }
  return rules;
}

void Fitter::explain(Fitted& fitted, const Assignment& assignment) const {
  const auto& device_name = [&](std::size_t d) { return devices_[d].name.c_str(); };
  if (assignment.empty()) {
    fitted.explanation.push_back("--fit: nothing that the given rules allow fits");
    return;
  }
  const AssignmentProblem problem = problem_for(fitted.n_ctx, false, fitted.rules.n_gpu_layers.value_or(kAllLayers));
  std::vector<double> gained(devices_.size(), 0.0);
  std::vector<std::uint64_t> used(devices_.size(), 0);
  std::vector<int> bodies(devices_.size(), 0), experts(devices_.size(), 0);
  std::uint64_t smallest_left = kNoLimit;
  for (std::size_t u = 0; u < assignment.size(); ++u) {
    const AssignmentProblem::Unit& unit = problem.units[u];
    const auto d = static_cast<std::size_t>(assignment[u]);
    ++(unit.ordered ? bodies : experts)[d];
    used[d] += unit.bytes[d];
    if (d > 0 && !std::isinf(unit.seconds[0])) gained[d] += unit.seconds[0] - unit.seconds[d];
    if (d == 0 && devices_.size() > 1) smallest_left = std::min(smallest_left, unit.bytes[1]);
  }
  for (std::size_t d = 1; d < devices_.size(); ++d) {
    const std::uint64_t room = problem.capacity[d] > used[d] ? problem.capacity[d] - used[d] : 0;
    const char* limit = smallest_left == kNoLimit ? "everything is on a device"
                        : room < smallest_left    ? "its memory is the limit"
                                                  : "more would not make a step shorter, or a rule forbids it";
    fitted.explanation.push_back(
        strf("--fit: %s: %d layers, experts of %d layers, %s with KV cache; a decode step is %.2f ms shorter than with "
             "these on the CPU; %s are left beside the margin of %s: %s",
             device_name(d), bodies[d], experts[d], size_text(used[d]).c_str(), 1e3 * gained[d],
             size_text(room).c_str(), size_text(margin(d)).c_str(), limit));
  }
  fitted.explanation.push_back(strf("--fit: CPU: %d layers, experts of %d layers", bodies[0], experts[0]));
  fitted.explanation.push_back(strf("--fit: modelled decode step %.2f ms at %d cells, context %d",
                                    1e3 * step_seconds(problem, assignment), std::min(fitted.n_ctx, kModelledDepth),
                                    fitted.n_ctx));
}

}  // namespace

Fitted fit(const PlanModel& model, const std::vector<PlanDevice>& devices, const PlacementRules& rules,
           const ContextMemory& memory, const FitRequest& request) {
  return Fitter(model, devices, rules, memory, request).run();
}

std::string flags_text(const PlacementRules& rules, int n_ctx, std::size_t n_devices) {
  std::string text =
      strf("-c %d -ngl %d", n_ctx, rules.n_gpu_layers.value_or(kAllLayers) == kAllLayers ? 999 : *rules.n_gpu_layers);
  if (n_devices > 2 && has_split(rules)) {
    text += " -ts ";
    for (std::size_t i = 0; i < rules.tensor_split.size(); ++i)
      text += strf("%s%g", i > 0 ? "," : "", static_cast<double>(rules.tensor_split[i]));
  }
  if (rules.tensor_rules.empty()) return text;
  text += " -ot \"";
  for (std::size_t i = 0; i < rules.tensor_rules.size(); ++i)
    text += (i > 0 ? "," : "") + rules.tensor_rules[i].pattern.text() + "=" + rules.tensor_rules[i].buffer;
  return text + "\"";
}

}  // namespace llama
