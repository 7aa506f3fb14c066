#pragma once

#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ggml/device.h"
#include "llama/plan.h"
#include "model/weights.h"

namespace llama {

/// Which devices hold each weight: what the plan says, and copies of the small tensors that an op needs beside others
/// (biases and scales lie with their matrix, what belongs to a state with the state, RoPE's divisors everywhere), so
/// that a plan cannot tear apart what no device could compute. A tensor that the plan does not name is where its layer
/// is, or with the embedding or the head.
class WeightPlaces {
 public:
  WeightPlaces(const Plan& plan, const ModelWeights& weights);

  /// Indices into the plan's devices; the first one is the plan's first.
  [[nodiscard]] const std::vector<ggml::DeviceId>& of(const ggml::Weight& weight) const { return places_.at(&weight); }
  /// Whether the host itself may read the weight, wherever it is computed with.
  [[nodiscard]] bool is_read_by_host(const ggml::Weight& weight) const { return host_.contains(&weight); }

  /// Takes weights from devices that cannot compute with their type; what is left without a place goes to the first
  /// device. Returns how many did.
  int leave_unsupported(std::span<ggml::Device* const> devices);

 private:
  void note(const TensorSet& set, Role role, ggml::DeviceId otherwise);
  void note_global(const ModelWeights& weights);
  void note_layer(const TensorSet& set, std::size_t layer);
  void add(const ggml::Weight* weight, ggml::DeviceId device);
  void add_all_parts(const TensorWithParts& parts, ggml::DeviceId device);

  const Plan& plan_;
  std::unordered_map<std::string_view, const TensorPlan*> planned_;
  std::unordered_map<const ggml::Weight*, std::vector<ggml::DeviceId>> places_;
  std::unordered_set<const ggml::Weight*> host_;
};

/// Throws Error(internal) where the plan names a device beyond the `n_devices` that were given.
void check_plan(const Plan& plan, std::size_t n_devices);

/// The entry of a plan's list for a layer; the first device where the list is empty.
[[nodiscard]] inline ggml::DeviceId device_of(const std::vector<ggml::DeviceId>& list, std::size_t layer) {
  return layer < list.size() ? list[layer] : ggml::DeviceId(0);
}

}  // namespace llama
