#include "model/merged_tensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ggml/log.h"
#include "model/weight_places.h"

namespace llama {

using ggml::logf;
using ggml::LogLevel;
using ggml::strf;

namespace {

/// Roles whose tensors may become one.
struct Kind {
  const char* flag;
  Role merged;
  std::string_view name;
  std::vector<Role> parts;
};

const Kind kQkv{"-mqkv", Role::attn_qkv, "attn_qkv", {Role::attn_q, Role::attn_k, Role::attn_v}};
const Kind kUpGate{"-muge", Role::ffn_gate_up_exps, "ffn_gate_up_exps", {Role::ffn_gate_exps, Role::ffn_up_exps}};

constexpr std::size_t kNParts = 3;  // weight, bias, scale

/// The tensors of one layer that might be merged; [role in the kind's order][weight, bias, scale].
using Candidate = std::vector<std::array<const ggml::gguf::TensorInfo*, kNParts>>;

std::string layers_text(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(layers[i]);
    if (last > i) text += "-" + std::to_string(layers[last]);
    i = last;
  }
  return text;
}

std::vector<const Kind*> wanted_kinds(const ModelParams& params) {
  std::vector<const Kind*> kinds;
  if (!may_merge(params)) return kinds;
  if (params.merge_qkv) kinds.push_back(&kQkv);
  if (params.merge_up_gate) kinds.push_back(&kUpGate);
  return kinds;
}

/// Layers that have a weight for each role, in a family that knows the merged form.
std::map<int, Candidate> candidates(const Kind& kind, std::span<const TensorRow> rows,
                                    std::span<const TensorMatch> matches) {
  std::map<int, Candidate> found;
  const bool known = std::any_of(rows.begin(), rows.end(), [&](const TensorRow& row) {
    return row.role == kind.parts.front() && row.instead == kind.merged;
  });
  if (!known) return found;
  for (const TensorMatch& match : matches) {
    const auto role = std::find(kind.parts.begin(), kind.parts.end(), match.role);
    if (match.layer < 0 || role == kind.parts.end()) continue;
    Candidate& candidate = found[match.layer];
    candidate.resize(kind.parts.size());
    candidate[static_cast<std::size_t>(role - kind.parts.begin())][static_cast<std::size_t>(match.part)] = match.info;
  }
  std::erase_if(found, [](const auto& entry) {
    return std::any_of(entry.second.begin(), entry.second.end(), [](const auto& parts) { return parts[0] == nullptr; });
  });
  return found;
}

/// Why the tensors cannot become one wherever they lie; empty: they can.
std::string why_unlike(const Candidate& candidate) {
  const auto& first = candidate.front();
  const auto type_name = [](const ggml::gguf::TensorInfo* info) { return std::string(ggml::type_info(info->type).id); };
  for (const auto& parts : candidate) {
    if (parts[0]->type != first[0]->type)
      return strf("their types are %s and %s", type_name(first[0]).c_str(), type_name(parts[0]).c_str());
    if ((parts[1] == nullptr) != (first[1] == nullptr)) return "only some of them have a bias";
    if (parts[2] != nullptr) return "they have scales of their own";
  }
  if (ggml::type_info(first[0]->type).tensor_trailer_bytes > 0)
    return strf("tensors of type %s have a scale of their own", type_name(first[0]).c_str());
  return {};
}

class Merger {
 public:
  Merger(std::vector<TensorMatch>& matches, Plan& plan) : matches_(matches), plan_(plan) {
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) planned_.emplace(plan.tensors[i].name, i);
  }

  void merge(const Kind& kind, std::span<const TensorRow> rows, std::vector<MergedTensor>& merged) {
    std::vector<int> done;
    std::map<std::string, std::vector<int>> apart;  // layers by reason
    for (const auto& [layer, candidate] : candidates(kind, rows, matches_)) {
      std::string reason = why_unlike(candidate);
      if (reason.empty() && !lies_together(candidate, layer)) reason = "they lie on different devices";
      (reason.empty() ? done : apart[reason]).push_back(layer);
      if (reason.empty()) take(kind, candidate, layer, merged);
    }
    for (const auto& [reason, layers] : apart)
      logf(LogLevel::info, "%s: layers %s stay as they are: %s", kind.flag, layers_text(layers).c_str(),
           reason.c_str());
    if (!done.empty())
      logf(LogLevel::info, "%s: %s of layers %s", kind.flag, std::string(kind.name).c_str(), layers_text(done).c_str());
    else if (apart.empty())
      logf(LogLevel::info, "%s has no effect: the model has no separate tensors that could be merged", kind.flag);
  }

 private:
  [[nodiscard]] std::vector<ggml::DeviceId> devices_of(const std::string& name, int layer) const {
    const auto entry = planned_.find(name);
    if (entry == planned_.end()) return {device_of(plan_.layer_device, static_cast<std::size_t>(layer))};
    std::vector<ggml::DeviceId> devices;
    for (const TensorPlan::Place& place : plan_.tensors[entry->second].places) devices.push_back(place.device);
    return devices;
  }

  [[nodiscard]] bool lies_together(const Candidate& candidate, int layer) const {
    const std::vector<ggml::DeviceId> devices = devices_of(candidate.front()[0]->name, layer);
    for (const auto& parts : candidate)
      for (const ggml::gguf::TensorInfo* part : parts)
        if (part != nullptr && devices_of(part->name, layer) != devices) return false;
    return true;
  }

  void take(const Kind& kind, const Candidate& candidate, int layer, std::vector<MergedTensor>& merged) {
    const std::int64_t n_stacks = candidate.front()[0]->shape[2];
    for (std::size_t part = 0; part < 2; ++part) {
      if (candidate.front()[part] == nullptr) continue;
      const bool is_weight = part == 0;
      MergedTensor tensor;
      tensor.name = strf("blk.%d.%s.%s", layer, std::string(kind.name).c_str(), is_weight ? "weight" : "bias");
      tensor.role = kind.merged;
      tensor.layer = layer;
      tensor.part = static_cast<TensorMatch::Part>(part);
      tensor.type = candidate.front()[part]->type;
      tensor.shape = candidate.front()[part]->shape;
      const int axis = is_weight ? 1 : 0;
      tensor.shape[axis] = 0;
      tensor.n_stacks = n_stacks;
      for (const auto& parts : candidate) {
        tensor.shape[axis] += parts[part]->shape[axis];
        tensor.parts.push_back(parts[part]);
      }
      plan_as(tensor);
      merged.push_back(std::move(tensor));
    }
    std::erase_if(matches_, [&](const TensorMatch& match) {
      return match.layer == layer && std::find(kind.parts.begin(), kind.parts.end(), match.role) != kind.parts.end();
    });
  }

  /// The merged tensor lies where its parts were planned.
  void plan_as(const MergedTensor& tensor) {
    const auto entry = planned_.find(tensor.parts.front()->name);
    if (entry == planned_.end()) return;
    TensorPlan planned = plan_.tensors[entry->second];
    planned.name = tensor.name;
    plan_.tensors.push_back(std::move(planned));
  }

  std::vector<TensorMatch>& matches_;
  Plan& plan_;
  std::unordered_map<std::string, std::size_t> planned_;
};

}  // namespace

std::vector<std::vector<std::string>> merge_groups(const ModelParams& params, std::span<const TensorRow> rows,
                                                   std::span<const TensorMatch> matches) {
  std::vector<std::vector<std::string>> groups;
  for (const Kind* kind : wanted_kinds(params))
    for (const auto& [layer, candidate] : candidates(*kind, rows, matches)) {
      if (!why_unlike(candidate).empty()) continue;
      std::vector<std::string>& names = groups.emplace_back();
      for (const auto& parts : candidate)
        for (const ggml::gguf::TensorInfo* part : parts)
          if (part != nullptr) names.push_back(part->name);
    }
  return groups;
}

std::vector<MergedTensor> merge_tensors(const ModelParams& params, std::span<const TensorRow> rows,
                                        std::vector<TensorMatch>& matches, Plan& plan) {
  std::vector<MergedTensor> merged;
  if ((params.merge_qkv || params.merge_up_gate) && !may_merge(params))
    logf(LogLevel::warn, "-mqkv and -muge have no effect: LoRA adapters change the tensors as the file has them");
  Merger merger(matches, plan);
  for (const Kind* kind : wanted_kinds(params)) merger.merge(*kind, rows, merged);
  return merged;
}

}  // namespace llama
