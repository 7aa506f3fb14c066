#include <algorithm>
#include <map>
#include <utility>

#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/placement.h"
#include "placement/expert_blocks.h"
#include "placement/layer_devices.h"
#include "placement/nearest_names.h"

namespace llama {

using ggml::BufferKind;
using ggml::DeviceId;
using ggml::Error;
using ggml::ErrorCode;
using ggml::PlacementRole;
using ggml::strf;

namespace {

constexpr std::uint64_t kDeviceAlign = 256;
constexpr DeviceId kCpu{0};

/// A rule that moves single tensors, whoever wrote it.
struct RuleMover {
  std::string text;
  BufferType buffer;
  const NamePattern* pattern = nullptr;  // null: `blocks` and `expert` say what it matches
  bool expert = false;
  std::vector<bool> blocks;

  [[nodiscard]] bool takes(const PlanTensor& tensor) const {
    if (pattern != nullptr) return pattern->found_in(tensor.name);
    return (expert ? tensor.expert : tensor.dense_ffn) && blocks[static_cast<std::size_t>(tensor.layer)];
  }
};

const BufferType& find_buffer_type(const std::vector<BufferType>& known, const BufferRule& rule) {
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const BufferType& type) { return type.name == rule.buffer; });
  if (found != known.end()) return *found;
  std::string list = "Available buffer types:";
  for (const BufferType& type : known) list += "\n  " + type.name;
  throw Error(ErrorCode::invalid_argument,
              "error: unknown buffer type \"" + rule.buffer +
                  "\"\nerror: Invalid tensor buffer type override: " + rule.pattern.text() + "=" + rule.buffer,
              std::move(list));
}

class Placer {
 public:
  Placer(const PlanModel& model, const std::vector<PlanDevice>& devices, const PlacementRules& rules)
      : model_(model), rules_(rules) {
    plan().devices = devices;
    plan().use.resize(devices.size());
  }

  Placed run() {
    place_layers();
    collect_movers();
    for (const PlanTensor& tensor : model_.tensors) place_tensor(tensor);
    place_merged();
    report_rules();
    report_torn_layers();
    return std::move(result_);
  }

 private:
  Plan& plan() { return result_.plan; }
  [[nodiscard]] std::string layer_rule() const;
  void place_layers();
  void collect_movers();
  void add_block_mover(std::string text, bool expert, const std::vector<int>& blocks);
  [[nodiscard]] std::vector<int> dense_blocks() const;
  void place_tensor(const PlanTensor& tensor);
  void place_merged();
  void add_place(TensorPlan& entry, const BufferType& where, PlacementRole role);
  void place_by_use(const PlanTensor& tensor, TensorPlan& entry);
  [[nodiscard]] BufferType home(DeviceId device) const;
  void report_rules();
  void report_torn_layers();

  const PlanModel& model_;
  const PlacementRules& rules_;
  Placed result_;
  std::vector<RuleMover> movers_;
};

std::string Placer::layer_rule() const {
  if (!rules_.layer_origin.empty()) return rules_.layer_origin;
  if (!rules_.n_gpu_layers) return "default";
  return *rules_.n_gpu_layers == kAllLayers ? "-ngl all" : strf("-ngl %d", *rules_.n_gpu_layers);
}

BufferType Placer::home(DeviceId device) const {
  if (device != kCpu)
    return {result_.plan.devices[static_cast<std::size_t>(device.v)].name, device, BufferKind::device};
  return {"CPU", kCpu, rules_.mapped ? BufferKind::mapping : BufferKind::host_pageable};
}

void Placer::place_layers() {
  std::vector<DeviceId> layers = layer_devices(model_.n_layer, plan().devices, rules_);
  plan().output_device = layers.back();
  layers.pop_back();
  plan().kv_device = rules_.kv_offload ? layers : std::vector<DeviceId>(layers.size(), kCpu);
  plan().layer_device = std::move(layers);
  std::vector<int> counts(plan().devices.size(), 0);
  for (const DeviceId device : plan().layer_device) ++counts[static_cast<std::size_t>(device.v)];
  ++counts[static_cast<std::size_t>(plan().output_device.v)];
  std::string where;
  for (std::size_t d = 1; d < counts.size(); ++d)
    if (counts[d] > 0)
      where += strf("%s%s: %d", where.empty() ? " (" : ", ", plan().devices[d].name.c_str(), counts[d]);
  if (!where.empty()) where += ')';
  result_.notes.push_back(strf("%s: %d of %d layers on GPUs%s", layer_rule().c_str(), model_.n_layer + 1 - counts[0],
                               model_.n_layer + 1, where.c_str()));
}

std::vector<int> Placer::dense_blocks() const {
  std::vector<int> blocks;
  for (const PlanTensor& tensor : model_.tensors)
    if (tensor.dense_ffn) blocks.push_back(tensor.layer);
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

void Placer::add_block_mover(std::string text, bool expert, const std::vector<int>& blocks) {
  RuleMover mover{std::move(text), home(kCpu), nullptr, expert, std::vector<bool>(plan().layer_device.size(), false)};
  for (const int block : blocks) mover.blocks[static_cast<std::size_t>(block)] = true;
  RuleOutcome outcome{};
  outcome.rule = mover.text;
  outcome.device = mover.buffer.name;
  outcome.blocks = ranges_text(blocks);
  movers_.push_back(std::move(mover));
  result_.rules.push_back(std::move(outcome));
}

void Placer::collect_movers() {
  const std::vector<BufferType> known = buffer_types(plan().devices);
  for (const BufferRule& rule : rules_.tensor_rules) {
    BufferType buffer = find_buffer_type(known, rule);
    if (buffer.device == kCpu && buffer.kind == BufferKind::mapping) buffer = home(kCpu);
    movers_.push_back({rule.text(), buffer, &rule.pattern, false, {}});
    RuleOutcome outcome{};
    outcome.rule = rule.text();
    outcome.device = buffer.name;
    result_.rules.push_back(std::move(outcome));
  }
  const std::vector<int> with_experts = expert_blocks(model_);
  if (rules_.cpu_moe) add_block_mover("--cpu-moe", true, with_experts);
  if (rules_.n_cpu_moe > 0) {
    const std::vector<int> taken =
        cpu_expert_blocks(with_experts, plan().layer_device, rules_.n_cpu_moe, rules_.cpu_moe_blocks);
    add_block_mover(n_cpu_moe_text(rules_.n_cpu_moe, rules_.cpu_moe_blocks), true, taken);
    const bool moves = std::any_of(taken.begin(), taken.end(), [&](int block) {
      return plan().layer_device[static_cast<std::size_t>(block)] != kCpu;
    });
    if (!moves && !taken.empty())
      result_.idle.push_back(movers_.back().text + " changes nothing: " + layer_rule() +
                             " leaves these blocks on the CPU");
  }
  if ((rules_.cpu_moe || rules_.n_cpu_moe > 0) && with_experts.empty())
    result_.idle.push_back(movers_.back().text + " has no effect: the model has no experts");
  if (rules_.n_cpu_ffn > 0) {
    std::vector<int> blocks = dense_blocks();
    blocks.resize(std::min(blocks.size(), static_cast<std::size_t>(rules_.n_cpu_ffn)));
    add_block_mover(strf("--n-cpu-ffn %d", rules_.n_cpu_ffn), false, blocks);
    if (blocks.empty())
      result_.idle.push_back(movers_.back().text + " has no effect: the model has no dense feed-forward");
  }
  result_.notes.insert(result_.notes.end(), result_.idle.begin(), result_.idle.end());
}

void Placer::add_place(TensorPlan& entry, const BufferType& where, PlacementRole role) {
  const auto device = static_cast<std::size_t>(where.device.v);
  const PlanDevice& target = plan().devices[device];
  std::uint64_t bytes = target.weight_bytes ? target.weight_bytes(entry.type, entry.shape) : 0;
  // A device that reads the file's form says 0.
  if (bytes == 0) bytes = ggml::tensor_bytes(entry.type, entry.shape);
  if (where.device != kCpu) bytes = (bytes + kDeviceAlign - 1) / kDeviceAlign * kDeviceAlign;
  entry.places.push_back({where.device, where.kind, role, bytes});
  plan().use[device].weights += bytes;
}

void Placer::place_by_use(const PlanTensor& tensor, TensorPlan& entry) {
  switch (tensor.use) {
    case TensorUse::input:
      add_place(entry, home(kCpu), PlacementRole::primary);
      break;
    case TensorUse::layer:
      add_place(entry, home(plan().layer_device[static_cast<std::size_t>(tensor.layer)]), PlacementRole::primary);
      break;
    case TensorUse::head:
      add_place(entry, home(plan().output_device), PlacementRole::primary);
      break;
    case TensorUse::input_and_head:
      add_place(entry, home(kCpu), PlacementRole::primary);
      if (plan().output_device != kCpu) add_place(entry, home(plan().output_device), PlacementRole::replica);
      break;
    case TensorUse::every_layer: {
      // The host shifts keys by them too.
      add_place(entry, home(kCpu), PlacementRole::primary);
      std::vector<bool> used(plan().devices.size(), false);
      for (const DeviceId device : plan().layer_device) used[static_cast<std::size_t>(device.v)] = true;
      for (std::size_t d = 1; d < used.size(); ++d)
        if (used[d]) add_place(entry, home(DeviceId(static_cast<int>(d))), PlacementRole::replica);
      break;
    }
  }
}

void Placer::place_tensor(const PlanTensor& tensor) {
  TensorPlan& entry = plan().tensors.emplace_back();
  entry.name = tensor.name;
  entry.type = tensor.type;
  entry.shape = tensor.shape;
  if (tensor.follows >= 0) {
    const TensorPlan source = plan().tensors[static_cast<std::size_t>(tensor.follows)];
    BufferType where = home(source.places.front().device);
    if (where.device == kCpu) where.kind = BufferKind::host_pageable;
    entry.rule = source.rule;
    add_place(entry, where, PlacementRole::primary);
    return;
  }
  const RuleMover* first = nullptr;
  for (std::size_t i = 0; i < movers_.size(); ++i) {
    if (!movers_[i].takes(tensor)) continue;
    RuleOutcome& outcome = result_.rules[i];
    if (first != nullptr) {
      if (outcome.n_shadowed++ == 0) outcome.shadower = first->text;
      continue;
    }
    first = &movers_[i];
    entry.rule = first->text;
    add_place(entry, first->buffer, PlacementRole::primary);
    ++outcome.n_tensors;
    outcome.bytes += entry.places.front().bytes;
  }
  if (first == nullptr) {
    const bool by_layer = tensor.use != TensorUse::input && tensor.use != TensorUse::every_layer;
    entry.rule = by_layer ? layer_rule() : "default";
    place_by_use(tensor, entry);
  }
  if (tensor.use == TensorUse::input && tensor.name.starts_with("token_embd."))
    plan().input_device = entry.places.front().device;
  if (tensor.use == TensorUse::input_and_head) plan().input_device = entry.places.front().device;
}

/// Tensors that become one are no longer the pages of the file.
void Placer::place_merged() {
  std::map<int, std::vector<TensorPlan*>> groups;
  for (std::size_t i = 0; i < model_.tensors.size(); ++i)
    if (model_.tensors[i].merge_group >= 0) groups[model_.tensors[i].merge_group].push_back(&plan().tensors[i]);
  const auto same_device = [](const TensorPlan::Place& a, const TensorPlan::Place& b) { return a.device == b.device; };
  for (const auto& [number, group] : groups) {
    const std::vector<TensorPlan::Place>& first = group.front()->places;
    const bool together = std::all_of(group.begin(), group.end(), [&](const TensorPlan* tensor) {
      return std::equal(first.begin(), first.end(), tensor->places.begin(), tensor->places.end(), same_device);
    });
    if (!together) continue;
    for (TensorPlan* tensor : group)
      for (TensorPlan::Place& place : tensor->places)
        if (place.kind == BufferKind::mapping) place.kind = BufferKind::host_pageable;
  }
}

void Placer::report_rules() {
  std::vector<std::string_view> names;
  for (const PlanTensor& tensor : model_.tensors) names.push_back(tensor.name);
  for (std::size_t i = 0; i < result_.rules.size(); ++i) {
    const RuleOutcome& rule = result_.rules[i];
    if (rule.n_tensors == 0 && rule.n_shadowed == 0) {
      if (movers_[i].pattern == nullptr) continue;
      std::string nearest;
      constexpr std::size_t kShown = 3;
      for (const std::string& name : nearest_names(movers_[i].pattern->literal_part(), names, kShown))
        nearest += (nearest.empty() ? "" : ", ") + name;
      result_.warnings.push_back(strf("%s: '%s' matches no tensor; nearest: %s", rules_.tensor_rules[i].origin.c_str(),
                                      movers_[i].pattern->text().c_str(), nearest.c_str()));
      continue;
    }
    if (rule.n_tensors == 0) {
      result_.warnings.push_back(strf("%s places nothing: all %d tensors that it matches are taken by %s",
                                      rule.rule.c_str(), rule.n_shadowed, rule.shadower.c_str()));
      continue;
    }
    std::string line = strf("%s: %d tensors, %s on %s", rule.rule.c_str(), rule.n_tensors,
                            size_text(rule.bytes).c_str(), rule.device.c_str());
    if (!rule.blocks.empty()) line += " (blocks " + rule.blocks + ")";
    if (rule.n_shadowed > 0)
      line += strf("; %d more are taken by an earlier rule, first by %s", rule.n_shadowed, rule.shadower.c_str());
    result_.notes.push_back(std::move(line));
  }
}

/// Layers whose gate, up and down matrices are not on one device.
void Placer::report_torn_layers() {
  std::vector<DeviceId> device(static_cast<std::size_t>(model_.n_layer), DeviceId(-1));
  std::vector<int> torn;
  for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
    const PlanTensor& tensor = model_.tensors[i];
    if (!(tensor.expert || tensor.dense_ffn) || !tensor.name.ends_with(".weight")) continue;
    const DeviceId here = plan().tensors[i].places.front().device;
    DeviceId& before = device[static_cast<std::size_t>(tensor.layer)];
    if (before.valid() && before != here && (torn.empty() || torn.back() != tensor.layer)) torn.push_back(tensor.layer);
    before = here;
  }
  if (torn.empty()) return;
  std::sort(torn.begin(), torn.end());
  torn.erase(std::unique(torn.begin(), torn.end()), torn.end());
  result_.notes.push_back(
      strf("feed-forward of layers %s: its tensors lie on several devices; each projection runs where "
           "its tensor is, and only activations cross",
           ranges_text(torn).c_str()));
}

}  // namespace

std::vector<BufferType> buffer_types(const std::vector<PlanDevice>& devices) {
  std::vector<BufferType> types;
  bool any_cuda = false;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    types.push_back(
        {devices[i].name, DeviceId(static_cast<int>(i)), i == 0 ? BufferKind::mapping : BufferKind::device});
    any_cuda = any_cuda || devices[i].name.starts_with("CUDA");
  }
  if (any_cuda) types.push_back({"CUDA_Host", kCpu, BufferKind::host_pinned});
  std::sort(types.begin(), types.end(), [](const BufferType& a, const BufferType& b) { return a.name < b.name; });
  return types;
}

void check_buffer_names(const PlacementRules& rules, const std::vector<PlanDevice>& devices) {
  const std::vector<BufferType> known = buffer_types(devices);
  for (const BufferRule& rule : rules.tensor_rules) (void)find_buffer_type(known, rule);
}

Placed place(const PlanModel& model, const std::vector<PlanDevice>& devices, const PlacementRules& rules) {
  return Placer(model, devices, rules).run();
}

std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (end > i) text += "-" + std::to_string(numbers[end]);
    i = end + 1;
  }
  return text;
}

std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? strf("%d B", static_cast<int>(bytes)) : strf("%.1f %s", value, kUnits[unit]);
}

}  // namespace llama
