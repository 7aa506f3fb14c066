#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "ggml/log.h"
#include "llama/placement.h"
#include "placement/assignment.h"
#include "placement/context_use.h"
#include "placement/layer_devices.h"
#include "placement/step_model.h"

namespace llama {

using ggml::DeviceId;
using ggml::strf;

namespace {

// More than any device has, and small enough that sums do not overflow.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

/// Whether a rule for single tensors put it where it is, not its layer.
bool is_moved_by_rule(const std::string& rule) {
  return rule.starts_with("-ot") || (rule.starts_with("--") && !rule.starts_with("--fit"));
}

bool has_split(const PlacementRules& rules) {
  return std::any_of(rules.tensor_split.begin(), rules.tensor_split.end(), [](float share) { return share > 0.0F; });
}

/// What of one layer can still be placed: its body, and its routed experts.
struct LayerUnits {
  std::vector<std::size_t> body, experts;  // tensors
  std::vector<bool> has_fixed_experts;     // per device: some of this layer's are there, whatever is chosen

  /// Whether activations leave a body on `device` for experts that do not move.
  [[nodiscard]] bool leaves(std::size_t device) const {
    for (std::size_t d = 0; d < has_fixed_experts.size(); ++d)
      if (has_fixed_experts[d] && d != device) return true;
    return false;
  }
};

/// Every way to lay `n_layer` layers on devices whose number never falls; none where there are more than `most` ways.
std::vector<std::vector<DeviceId>> ordered_splits(std::size_t n_layer, std::size_t n_devices, std::size_t most) {
  std::vector<std::vector<DeviceId>> splits;
  std::vector<DeviceId> layers(n_layer, DeviceId(0));
  const int last = static_cast<int>(n_devices) - 1;
  for (;;) {
    if (splits.size() == most) return {};
    splits.push_back(layers);
    // The next one: the last layer that can go on does, and takes along all behind it.
    auto at = std::find_if(layers.rbegin(), layers.rend(), [&](DeviceId d) { return d.v < last; });
    if (at == layers.rend()) return splits;
    const DeviceId next(at->v + 1);
    std::fill(at.base() - 1, layers.end(), next);
  }
}

/// Something that --fit could answer.
struct Candidate {
  PlacementRules rules;
  int n_ctx = 0;
  AssignmentProblem problem;
  Assignment assignment;
  double seconds = 0;  // of a step
};

/// One --fit: the units, what is fixed, and the way back to rules.
class Fitter {
 public:
  Fitter(const PlanModel& model, const std::vector<PlanDevice>& devices, const PlacementRules& rules,
         const ContextMemory& memory, const FitRequest& request)
      : model_(model), devices_(devices), rules_(rules), memory_(memory), request_(request), margins_(request.margins) {
    margins_.resize(devices.size(), 0);
    const bool by_share = rules.cpu_moe_blocks == ExpertBlocks::even ||
                          (rules.cpu_moe_blocks == ExpertBlocks::automatic && devices.size() > 2);
    fixed_follows_layers_ = rules.n_cpu_moe > 0 && by_share;
  }

  Fitted run();

 private:
  void fix(Plan plan);
  void measure(const Plan& plan, int n_ctx);
  [[nodiscard]] int choose_context();
  [[nodiscard]] int widest_context(const Candidate& candidate);
  [[nodiscard]] bool leaves_margins(const Plan& plan) const;
  [[nodiscard]] Plan plan_of(const PlacementRules& rules, int n_ctx) const;
  void search();
  void choose_borders(int n_ctx);
  void move_borders(int n_ctx);
  bool consider(const Assignment& assignment, int n_ctx);
  bool consider_on(std::vector<DeviceId> layers, int n_ctx);
  [[nodiscard]] bool is_as_ngl_says(const std::vector<DeviceId>& layers) const;
  [[nodiscard]] Assignment solve_rules(int n_ctx, bool without_cpu) const;
  [[nodiscard]] Assignment solve_on(std::vector<DeviceId> layers, int n_ctx);
  [[nodiscard]] AssignmentProblem problem_for(int n_ctx, bool without_cpu, int n_gpu_layers) const;
  [[nodiscard]] AssignmentProblem::Unit unit_of(const std::vector<std::size_t>& tensors, bool ordered) const;
  void restrict_bodies(AssignmentProblem& problem, int n_gpu_layers, bool without_cpu) const;
  [[nodiscard]] std::vector<std::uint64_t> capacities(int n_ctx) const;
  [[nodiscard]] PlacementRules rules_from(const Assignment& assignment) const;
  [[nodiscard]] PlacementRules layer_rules(const std::vector<DeviceId>& layers) const;
  [[nodiscard]] std::vector<DeviceId> layers_of(const Assignment& assignment) const;
  void explain(Fitted& fitted) const;

  const PlanModel& model_;
  const std::vector<PlanDevice>& devices_;
  const PlacementRules& rules_;
  const ContextMemory& memory_;
  const FitRequest& request_;
  std::vector<std::uint64_t> margins_;  // per device
  bool fixed_follows_layers_ = false;   // --n-cpu-moe takes its blocks from each device's share

  Plan base_;                          // that the user's rules alone make
  std::vector<LayerUnits> layers_;     // the head is the last
  std::vector<bool> fixed_;            // per tensor
  std::vector<DeviceId> only_;         // per layer and head, where it must be; empty: as the rules say
  std::vector<std::uint64_t> beside_;  // per device: the most seen
  std::optional<Candidate> best_;
};

Fitted Fitter::run() {
  fix(place(model_, devices_, rules_).plan);
  Fitted fitted{rules_, 0, {}, {}};
  if (devices_.size() == 1) {
    fitted.n_ctx = choose_context();
    return fitted;
  }
  search();
  const bool asks_margins =
      std::any_of(margins_.begin(), margins_.end(), [](std::uint64_t bytes) { return bytes > 0; });
  if (!best_ && asks_margins) {
    // A margin is a wish where the plan fits only without it.
    margins_.assign(margins_.size(), 0);
    fix(place(model_, devices_, rules_).plan);
    search();
    if (best_)
      fitted.notes.emplace_back("--fit: nothing that the rules allow fits beside the margins: they are not kept");
  }
  if (!best_) {
    fitted.n_ctx = choose_context();
    fitted.explanation.emplace_back("--fit: nothing that the given rules allow fits");
    return fitted;
  }
  fitted.rules = best_->rules;
  fitted.n_ctx = widest_context(*best_);
  explain(fitted);
  return fitted;
}

/// Takes the best of what the rules allow. What a context needs beside the cache depends a little on the placement, and
/// so may the blocks that --n-cpu-moe takes: both are looked up anew for what was found, until it holds.
void Fitter::search() {
  int n_ctx = choose_context();
  measure(base_, n_ctx);
  constexpr int kMostRounds = 6;
  for (int round = 0; round < kMostRounds; ++round) {
    Assignment found = solve_rules(n_ctx, false);
    if (found.empty()) break;
    if (fixed_follows_layers_) found = solve_on(layers_of(found), n_ctx);
    const bool leaves = !found.empty() && consider(found, n_ctx);
    // The blocks were those of the split before: one more round sees the new ones.
    const bool settled = !fixed_follows_layers_ || round > 0;
    if (leaves && settled) break;
    n_ctx = choose_context();
  }
  if (fixed_follows_layers_ && !has_split(rules_)) choose_borders(n_ctx);
}

/// With the blocks of --n-cpu-moe tied to the layers of each device the search above sees only the blocks of the split
/// that it came from. Few splits are all tried; of many those that moving single layers leads to.
void Fitter::choose_borders(int n_ctx) {
  constexpr std::size_t kFewLayers = 12, kFewSplits = 128;
  std::vector<std::vector<DeviceId>> splits;
  if (layers_.size() <= kFewLayers) splits = ordered_splits(layers_.size(), devices_.size(), kFewSplits);
  for (const std::vector<DeviceId>& layers : splits)
    if (is_as_ngl_says(layers)) (void)consider_on(layers, n_ctx);
  if (splits.empty() && best_) move_borders(n_ctx);
}

void Fitter::move_borders(int n_ctx) {
  constexpr int kMostMoves = 8;
  std::vector<DeviceId> layers = layers_of(best_->assignment);
  const int last = static_cast<int>(devices_.size()) - 1;
  for (int move = 0; move < kMostMoves; ++move) {
    const double before = best_->seconds;
    for (int left = rules_.n_gpu_layers ? 1 : 0; left < last; ++left) {
      // The first layer behind the border, and the last one before it.
      const auto border = std::find_if(layers.begin(), layers.end(), [&](DeviceId d) { return d.v > left; });
      for (const bool forward : {true, false}) {
        std::vector<DeviceId> moved = layers;
        const auto at = border - layers.begin();
        if (forward ? border == layers.end() : border == layers.begin()) continue;
        const DeviceId to = forward ? DeviceId(left) : DeviceId(left + 1);
        moved[static_cast<std::size_t>(forward ? at : at - 1)] = to;
        if (!std::is_sorted(moved.begin(), moved.end(), [](DeviceId a, DeviceId b) { return a.v < b.v; })) continue;
        (void)consider_on(std::move(moved), n_ctx);
      }
    }
    if (!(best_->seconds < before)) return;
    layers = layers_of(best_->assignment);
  }
}

bool Fitter::is_as_ngl_says(const std::vector<DeviceId>& layers) const {
  if (!rules_.n_gpu_layers) return true;
  const auto n_gpu = std::count_if(layers.begin(), layers.end(), [](DeviceId d) { return d.v > 0; });
  return n_gpu == std::clamp(*rules_.n_gpu_layers, 0, model_.n_layer + 1);
}

bool Fitter::consider_on(std::vector<DeviceId> layers, int n_ctx) {
  const Assignment found = solve_on(std::move(layers), n_ctx);
  return !found.empty() && consider(found, n_ctx);
}

/// Plans with an assignment and keeps it when it is the best so far; whether it leaves the margins.
bool Fitter::consider(const Assignment& assignment, int n_ctx) {
  PlacementRules rules = rules_from(assignment);
  measure(place(model_, devices_, rules).plan, n_ctx);
  const Plan plan = plan_of(rules, n_ctx);
  if (!leaves_margins(plan)) return false;
  const double seconds = decode_seconds(model_, plan, memory_.kv_per_layer(std::min(n_ctx, kModelledDepth)));
  if (best_ && !(seconds < best_->seconds)) return true;
  const int n_gpu_layers = rules.n_gpu_layers.value_or(kAllLayers);
  best_ = Candidate{std::move(rules), n_ctx, problem_for(n_ctx, false, n_gpu_layers), assignment, seconds};
  return true;
}

Plan Fitter::plan_of(const PlacementRules& rules, int n_ctx) const {
  Plan plan = place(model_, devices_, rules).plan;
  add_context_use(memory_, n_ctx, plan);
  return plan;
}

/// Sorts tensors into those that the user's rules place, as `plan` has them, and those that are left open.
void Fitter::fix(Plan plan) {
  base_ = std::move(plan);
  layers_.assign(static_cast<std::size_t>(model_.n_layer) + 1, {});
  fixed_.assign(model_.tensors.size(), true);
  for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
    const PlanTensor& tensor = model_.tensors[i];
    if (is_moved_by_rule(base_.tensors[i].rule)) {
      if (!tensor.expert) continue;
      std::vector<bool>& where = layers_[static_cast<std::size_t>(tensor.layer)].has_fixed_experts;
      where.resize(devices_.size(), false);
      where[static_cast<std::size_t>(base_.tensors[i].places.back().device.v)] = true;
      continue;
    }
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
    if (plan.use[d].total() > 0 && plan.use[d].total() + margins_[d] > devices_[d].free_bytes) return false;
  return shortfall(plan, 0) == 0;
}

std::vector<std::uint64_t> Fitter::capacities(int n_ctx) const {
  std::vector<std::uint64_t> fixed(devices_.size(), 0);
  for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
    for (const TensorPlan::Place& place : base_.tensors[i].places) {
      const bool counts = place.device.v != 0 || place.kind != ggml::BufferKind::mapping;
      if (fixed_[i] && counts) fixed[static_cast<std::size_t>(place.device.v)] += place.bytes;
    }
  }
  if (!rules_.kv_offload)
    for (const std::uint64_t bytes : memory_.kv_per_layer(n_ctx)) fixed[0] += bytes;
  std::vector<std::uint64_t> capacity(devices_.size(), 0);
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    const std::uint64_t taken = fixed[d] + beside_[d] + margins_[d];
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
      // Pages of the file take no memory that could run out (merged tensors have none), and a tied head on the CPU is
      // the embedding itself.
      const bool has_pages = rules_.mapped && tensor.merge_group < 0;
      const bool free = d == 0 && (has_pages || tensor.use == TensorUse::input_and_head);
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
  std::size_t layers = 0;
  for (AssignmentProblem::Unit& unit : problem.units) {
    if (unit.ordered) ++layers;  // experts belong to the layer before them
    const std::size_t layer = layers - 1;
    const DeviceId wanted = exact[layer];
    // Without the CPU: but for what -ngl keeps there.
    const bool may_use_cpu = !without_cpu || (rules_.n_gpu_layers && wanted.v == 0);
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const bool is_cpu = d == 0;
      bool allowed = !is_cpu || may_use_cpu;
      if (!only_.empty() && unit.ordered) {
        allowed = only_[layer] == DeviceId(static_cast<int>(d));
      } else if (unit.ordered) {
        if (rules_.n_gpu_layers || has_split(rules_)) allowed = allowed && is_cpu == (wanted.v == 0);
        if (is_exact && !is_cpu) allowed = allowed && wanted == DeviceId(static_cast<int>(d));
      }
      const int main_gpu = rules_.main_gpu.value_or(0);
      if (rules_.split_mode == SplitMode::none && !is_cpu && static_cast<int>(d) != main_gpu + 1) allowed = false;
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
    AssignmentProblem::Unit experts = unit_of(layers_[i].experts, false);
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      // What stays elsewhere, whatever is chosen, weighs on where the body should be.
      experts.leaves_anyhow.push_back(layers_[i].leaves(d));
      const bool to_cache = i < kv.size() && !rules_.kv_offload && d > 0;
      body.seconds[d] += 2 * kCrossingSeconds * ((layers_[i].leaves(d) ? 1 : 0) + (to_cache ? 1 : 0));
    }
    problem.units.push_back(std::move(body));
    if (!layers_[i].experts.empty()) problem.units.push_back(std::move(experts));
  }
  restrict_bodies(problem, n_gpu_layers, without_cpu);
  return problem;
}

Assignment Fitter::solve_rules(int n_ctx, bool without_cpu) const {
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

/// The best places of experts where every layer has its device, and with them --n-cpu-moe its blocks.
Assignment Fitter::solve_on(std::vector<DeviceId> layers, int n_ctx) {
  fix(place(model_, devices_, layer_rules(layers)).plan);
  only_ = std::move(layers);
  Assignment found = solve(problem_for(n_ctx, false, rules_.n_gpu_layers.value_or(kAllLayers)));
  only_.clear();
  return found;
}

/// The largest context up to the one that is wanted for which `works` is true, in whole steps; the least one when it is
/// true for none. `works` stays false once it is.
template <class Works>
int largest_context(const FitRequest& request, int least, const Works& works) {
  if (works(request.n_ctx)) return request.n_ctx;
  const int step = request.context_step;
  int low = (least + step - 1) / step, high = request.n_ctx / step + 1;
  if (low * step >= request.n_ctx) return request.n_ctx;
  if (!works(low * step)) return low * step;
  while (low + 1 < high) {
    const int middle = low + (high - low) / 2;
    (works(middle * step) ? low : high) = middle;
  }
  return low * step;
}

/// Context first, as users of --fit expect: all of it where everything then fits on the devices, else less of it, down
/// to the least; only then are layers moved out.
int Fitter::choose_context() {
  if (!request_.choose_context) return request_.n_ctx;
  // What is needed beside the cache hardly depends on the context, and grows with it.
  measure(base_, request_.n_ctx);
  return largest_context(request_, std::min(request_.least_context, request_.n_ctx), [&](int n_ctx) {
    if (devices_.size() > 1) return !solve_rules(n_ctx, true).empty();
    Plan plan = base_;
    add_context_use(memory_, n_ctx, plan);
    return fits(plan);
  });
}

/// The context that fits beside a placement: what is left over, or a cache that is on no device at all, gives it back
/// what choose_context() took.
int Fitter::widest_context(const Candidate& candidate) {
  if (!request_.choose_context || candidate.n_ctx >= request_.n_ctx) return candidate.n_ctx;
  const Plan bare = place(model_, devices_, candidate.rules).plan;
  const std::vector<DeviceUse> most_beside = memory_.beside(bare, request_.n_ctx);
  const int found = largest_context(request_, candidate.n_ctx, [&](int n_ctx) {
    Plan plan = bare;
    add_use(memory_.kv_per_layer(n_ctx), most_beside, plan);
    return leaves_margins(plan);
  });
  return found > candidate.n_ctx && leaves_margins(plan_of(candidate.rules, found)) ? found : candidate.n_ctx;
}

std::vector<DeviceId> Fitter::layers_of(const Assignment& assignment) const {
  std::vector<DeviceId> layers;
  std::size_t u = 0;
  for (const LayerUnits& layer : layers_) {
    layers.emplace_back(assignment[u++]);
    if (!layer.experts.empty()) ++u;
  }
  return layers;
}

/// The user's rules with their layers and the head on these devices.
PlacementRules Fitter::layer_rules(const std::vector<DeviceId>& layers) const {
  PlacementRules rules = rules_;
  std::vector<int> counts(devices_.size(), 0);
  for (const DeviceId device : layers) ++counts[static_cast<std::size_t>(device.v)];
  if (!rules.n_gpu_layers) {
    rules.layer_origin = "--fit";
    rules.n_gpu_layers = model_.n_layer + 1 - counts[0];
  }
  if (devices_.size() > 2 && rules.split_mode == SplitMode::layer && !has_split(rules_))
    rules.tensor_split.assign(counts.begin() + 1, counts.end());
  return rules;
}

PlacementRules Fitter::rules_from(const Assignment& assignment) const {
  const std::vector<DeviceId> layers = layers_of(assignment);
  PlacementRules rules = layer_rules(layers);
  std::vector<std::vector<int>> experts(devices_.size());
  std::size_t u = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    ++u;
    if (layers_[i].experts.empty()) continue;
    const int device = assignment[u++];
    if (device != layers[i].v) experts[static_cast<std::size_t>(device)].push_back(static_cast<int>(i));
  }
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

/// Layers and experts of a plan on one device.
struct OnDevice {
  int layers = 0, expert_layers = 0, ruled = 0;  // ruled: of the layers with experts, those that a rule of the user put
};

std::vector<OnDevice> count_places(const PlanModel& model, const Plan& plan) {
  std::vector<OnDevice> counts(plan.devices.size());
  for (const DeviceId device : plan.layer_device) ++counts[static_cast<std::size_t>(device.v)].layers;
  ++counts[static_cast<std::size_t>(plan.output_device.v)].layers;
  std::map<std::pair<int, std::size_t>, bool> seen;  // layer and device: by a rule
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    if (!model.tensors[i].expert) continue;
    const auto device = static_cast<std::size_t>(plan.tensors[i].places.front().device.v);
    seen[{model.tensors[i].layer, device}] |= is_moved_by_rule(plan.tensors[i].rule);
  }
  for (const auto& [where, by_rule] : seen) {
    ++counts[where.second].expert_layers;
    if (by_rule) ++counts[where.second].ruled;
  }
  return counts;
}

std::string places_text(const OnDevice& count) {
  std::string text = strf("%d layers, experts of %d layers", count.layers, count.expert_layers);
  if (count.ruled > 0) text += strf(" (of %d by your rules)", count.ruled);
  return text;
}

void Fitter::explain(Fitted& fitted) const {
  const Candidate& best = *best_;
  const AssignmentProblem& problem = best.problem;
  std::vector<double> gained(devices_.size(), 0.0);
  std::vector<std::uint64_t> smallest_left(devices_.size(), kNoLimit);
  for (std::size_t u = 0; u < best.assignment.size(); ++u) {
    const AssignmentProblem::Unit& unit = problem.units[u];
    const auto d = static_cast<std::size_t>(best.assignment[u]);
    if (d > 0 && !std::isinf(unit.seconds[0])) gained[d] += unit.seconds[0] - unit.seconds[d];
    for (std::size_t other = 1; d == 0 && other < devices_.size(); ++other)
      smallest_left[other] = std::min(smallest_left[other], unit.bytes[other]);
  }
  const Plan plan = plan_of(fitted.rules, fitted.n_ctx);
  const std::vector<OnDevice> counts = count_places(model_, plan);
  for (std::size_t d = 1; d < devices_.size(); ++d) {
    const std::uint64_t used = plan.use[d].total(), taken = used + margins_[d], free = devices_[d].free_bytes;
    const std::uint64_t room = free > taken ? free - taken : 0;
    const char* limit = smallest_left[d] == kNoLimit ? "nothing that may move is left on the CPU"
                        : room < smallest_left[d]    ? "its memory is the limit"
                                                     : "more would not make a step shorter, or a rule forbids it";
    fitted.explanation.push_back(
        strf("--fit: %s: %s, %s in all; a decode step is %.2f ms shorter than with what was chosen on the CPU; %s are "
             "left beside the margin of %s: %s",
             devices_[d].name.c_str(), places_text(counts[d]).c_str(), size_text(used).c_str(), 1e3 * gained[d],
             size_text(room).c_str(), size_text(margins_[d]).c_str(), limit));
  }
  fitted.explanation.push_back("--fit: CPU: " + places_text(counts[0]));
  fitted.explanation.push_back(strf("--fit: modelled decode step %.2f ms at %d cells, context %d", 1e3 * best.seconds,
                                    std::min(fitted.n_ctx, kModelledDepth), fitted.n_ctx));
}

}  // namespace

Fitted fit(const PlanModel& model, const std::vector<PlanDevice>& devices, const PlacementRules& rules,
           const ContextMemory& memory, const FitRequest& request) {
  return Fitter(model, devices, rules, memory, request).run();
}

}  // namespace llama
