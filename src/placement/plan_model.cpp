#include <string_view>
#include <unordered_map>

#include "ggml/tensor.h"
#include "llama/placement.h"
#include "model/hparams.h"
#include "model/weights.h"
#include "placement/expert_blocks.h"

namespace llama {

namespace {

TensorUse global_use(Role role, bool tied) {
  switch (role) {
    case Role::token_embd:
      return tied ? TensorUse::input_and_head : TensorUse::input;
    case Role::output:
    case Role::output_norm:
      return TensorUse::head;
    case Role::rope_freqs:
    case Role::rope_factors_long:
    case Role::rope_factors_short:
      return TensorUse::every_layer;
    default:
      return TensorUse::input;  // what encoders add to the embedding
  }
}

/// Index of the tensor that a derived weight is made from.
int source_of(const TensorSet& set, const std::unordered_map<const ggml::Weight*, int>& index_of) {
  for (const Role role : {Role::attn_kv_b, Role::attn_k_b}) {
    const auto found = index_of.find(set[role].weight);
    if (found != index_of.end()) return found->second;
  }
  return -1;
}

}  // namespace

PlanModel plan_model(const Model& outline) {
  const ModelWeights& weights = outline.weights();
  const Hparams& hparams = outline.hparams();
  const bool tied = !weights.global[Role::output] && !hparams.is_encoder;
  struct Place {
    int layer;
    Role role;
    const ggml::Weight* base = nullptr;  // adapters: the tensor that they change
  };
  std::unordered_map<const ggml::Weight*, Place> places;
  const auto note = [&](const TensorSet& set, int layer) {
    for (std::size_t role = 0; role < kRoleCount; ++role) {
      const TensorWithParts& parts = set.parts[role];
      for (const ggml::Weight* weight : {parts.weight, parts.bias, parts.scale})
        if (weight != nullptr) places[weight] = {layer, static_cast<Role>(role)};
      const ggml::Weight* base = parts.weight != nullptr ? parts.weight : weights.global[Role::token_embd].weight;
      for (const AdapterPair& pair : parts.adapters)
        for (const ggml::Weight* weight : {pair.a, pair.b}) places[weight] = {layer, static_cast<Role>(role), base};
    }
  };
  note(weights.global, -1);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) note(weights.layers[i], static_cast<int>(i));

  const std::vector<std::vector<std::string>> groups = outline.merge_groups();
  std::unordered_map<std::string_view, int> group_of;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const std::string& name : groups[g]) group_of[name] = static_cast<int>(g);

  PlanModel model;
  model.n_layer = hparams.n_layer;
  if (hparams.has_experts()) model.expert_share = static_cast<double>(hparams.experts.used) / hparams.experts.count;
  std::unordered_map<const ggml::Weight*, int> index_of;
  for (const ggml::Weight& weight : weights.tensors) {
    const Place place = places.at(&weight);
    PlanTensor tensor;
    tensor.name = weight.name;
    tensor.type = weight.type;
    tensor.shape = weight.shape;
    tensor.bytes = ggml::tensor_bytes(weight.type, weight.shape);
    tensor.layer = place.layer;
    tensor.use = place.layer >= 0 ? TensorUse::layer : global_use(place.role, tied);
    tensor.expert = place.layer >= 0 && is_routed_expert(weight.name);
    tensor.dense_ffn = place.layer >= 0 && is_dense_ffn(weight.name);
    if (const auto group = group_of.find(weight.name); group != group_of.end()) tensor.merge_group = group->second;
    const bool derived = weight.placements.front().kind == ggml::BufferKind::host_pageable;
    if (place.base != nullptr)
      tensor.follows = index_of.at(place.base);
    else if (derived && place.layer >= 0 && place.role != Role::control_vector)
      tensor.follows = source_of(weights.layers[static_cast<std::size_t>(place.layer)], index_of);
    index_of[&weight] = static_cast<int>(model.tensors.size());
    model.tensors.push_back(std::move(tensor));
  }
  return model;
}

}  // namespace llama
