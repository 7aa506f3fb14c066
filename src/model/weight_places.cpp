#include "model/weight_places.h"

#include <algorithm>
#include <string>

#include "ggml/error.h"
#include "ggml/log.h"

namespace llama {

using ggml::DeviceId;
using ggml::Weight;

namespace {

constexpr Role kRopeRoles[] = {Role::rope_freqs, Role::rope_factors_long, Role::rope_factors_short};
/// What an op needs where its state lies.
constexpr Role kStateRoles[] = {Role::attn_sinks, Role::ssm_conv1d, Role::ssm_a, Role::ssm_dt};
/// Sources of derived weights, and what is derived from them.
constexpr Role kLatentSources[] = {Role::attn_kv_b, Role::attn_k_b};
constexpr Role kLatentDerived[] = {Role::attn_k_b, Role::attn_k_up};

}  // namespace

WeightPlaces::WeightPlaces(const Plan& plan, const ModelWeights& weights) : plan_(plan) {
  for (const TensorPlan& tensor : plan.tensors) planned_.emplace(tensor.name, &tensor);
  note_global(weights);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) note_layer(weights.layers[i], i);
}

void WeightPlaces::add(const Weight* weight, DeviceId device) {
  if (weight == nullptr) return;
  std::vector<DeviceId>& places = places_[weight];
  if (std::find(places.begin(), places.end(), device) == places.end()) places.push_back(device);
}

void WeightPlaces::add_all_parts(const TensorWithParts& parts, DeviceId device) {
  add(parts.weight, device);
  for_each_companion(parts, [&](const Weight* part) { add(part, device); });
}

/// The plan's places; biases, scales and adapters also where their matrix is.
void WeightPlaces::note(const TensorSet& set, Role role, DeviceId otherwise) {
  const TensorWithParts& parts = set[role];
  const auto note_part = [&](const Weight* part) {
    // The CPU may have to add or multiply these for a device that cannot, and they are small.
    if (part == parts.bias || part == parts.scale || part->shape.rows() == 1) host_.insert(part);
    const auto planned = planned_.find(part->name);
    if (planned == planned_.end() || planned->second->places.empty()) {
      if (part == parts.weight) add(part, otherwise);
    } else {
      for (const TensorPlan::Place& place : planned->second->places) add(part, place.device);
    }
    if (part == parts.weight || parts.weight == nullptr) return;
    const std::vector<DeviceId> with = places_[parts.weight];
    for (const DeviceId device : with) add(part, device);
  };
  if (parts.weight != nullptr) note_part(parts.weight);
  for_each_companion(parts, note_part);
  if (parts.weight != nullptr) return;
  // A bias without a matrix (dt of a recurrent layer).
  for (const Weight* part : {parts.bias, parts.scale})
    if (part != nullptr && places_[part].empty()) add(part, otherwise);
  // A head that has the embedding's matrix, and its adapters, which are wanted at both ends.
  for (const AdapterPair& pair : parts.adapters)
    for (const Weight* part : {pair.a, pair.b}) add(part, otherwise);
}

void WeightPlaces::note_global(const ModelWeights& weights) {
  const TensorSet& global = weights.global;
  for (std::size_t r = 0; r < kRoleCount; ++r) {
    const auto role = static_cast<Role>(r);
    note(global, role, role == Role::output || role == Role::output_norm ? plan_.output_device : plan_.input_device);
  }
  // A tied head is wanted at both ends.
  const Weight* embedding = global[Role::token_embd].weight;
  if (embedding != nullptr && !global[Role::output] && !planned_.contains(embedding->name))
    add(embedding, plan_.output_device);
  for (const Role role : kRopeRoles) {
    const TensorWithParts& parts = global[role];
    add_all_parts(parts, DeviceId(0));
    if (parts.weight != nullptr) host_.insert(parts.weight);
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      add_all_parts(parts, device_of(plan_.layer_device, i));
      add_all_parts(parts, device_of(plan_.kv_device, i));
    }
  }
}

void WeightPlaces::note_layer(const TensorSet& set, std::size_t layer) {
  const DeviceId home = device_of(plan_.layer_device, layer);
  for (std::size_t r = 0; r < kRoleCount; ++r) note(set, static_cast<Role>(r), home);
  for (const Role role : kStateRoles) {
    add_all_parts(set[role], device_of(plan_.kv_device, layer));
    add_all_parts(set[role], DeviceId(0));  // where states go that a card cannot work on
  }
  const Weight* source = nullptr;
  for (const Role role : kLatentSources)
    if (source == nullptr) source = set[role].weight;
  if (source == nullptr) return;
  host_.insert(source);
  for (const Role role : kLatentDerived) {
    const Weight* derived = set[role].weight;
    if (derived == nullptr || derived->name.find("(derived)") == std::string::npos || planned_.contains(derived->name))
      continue;
    places_[derived] = places_[source];
  }
}

void check_plan(const Plan& plan, std::size_t n_devices) {
  const auto check = [&](DeviceId device, const std::string& what) {
    if (device.v < 0 || static_cast<std::size_t>(device.v) >= n_devices)
      throw ggml::Error(ggml::ErrorCode::internal,
                        ggml::strf("the plan puts %s on device %d, there are %zu", what.c_str(), device.v, n_devices));
  };
  check(plan.input_device, "the input");
  check(plan.output_device, "the output");
  for (std::size_t i = 0; i < plan.layer_device.size(); ++i) check(plan.layer_device[i], "layer " + std::to_string(i));
  for (std::size_t i = 0; i < plan.kv_device.size(); ++i)
    check(plan.kv_device[i], "the KV cache of layer " + std::to_string(i));
  for (const TensorPlan& tensor : plan.tensors)
    for (const TensorPlan::Place& place : tensor.places) check(place.device, tensor.name);
}

int WeightPlaces::leave_unsupported(std::span<ggml::Device* const> devices) {
  int n = 0;
  for (auto& [weight, places] : places_) {
    const auto lacks = [&, w = weight](DeviceId d) {
      return d.v != 0 && !devices[static_cast<std::size_t>(d.v)]->supports(w->type);
    };
    places.erase(std::remove_if(places.begin(), places.end(), lacks), places.end());
    if (!places.empty()) continue;
    places.emplace_back(0);
    ++n;
  }
  return n;
}

}  // namespace llama
