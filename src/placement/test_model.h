#pragma once

#include <string>
#include <vector>

#include "llama/placement.h"

namespace llama::testing {

/// A model of `n_layer` blocks, of which the first `n_dense` have a dense feed-forward and the rest experts.
inline PlanModel blocks_model(int n_layer, int n_dense, bool tied = false) {
  PlanModel model;
  model.n_layer = n_layer;
  model.expert_share = 0.125;
  const auto add = [&](const std::string& name, const ggml::Shape& shape, TensorUse use, int layer) -> PlanTensor& {
    PlanTensor& tensor = model.tensors.emplace_back();
    tensor.name = name;
    tensor.type = shape.dims() == 1 ? ggml::DType::f32 : ggml::DType::q8_0;
    tensor.shape = shape;
    tensor.bytes = ggml::tensor_bytes(tensor.type, shape);
    tensor.use = use;
    tensor.layer = layer;
    return tensor;
  };
  using ggml::Shape;
  add("token_embd.weight", Shape(64, 320), tied ? TensorUse::input_and_head : TensorUse::input, -1);
  add("output_norm.weight", Shape(64), TensorUse::head, -1);
  if (!tied) add("output.weight", Shape(64, 320), TensorUse::head, -1);
  for (int i = 0; i < n_layer; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    const auto layer = [&](const char* name, const Shape& shape) -> PlanTensor& {
      return add(prefix + name, shape, TensorUse::layer, i);
    };
    layer("attn_norm.weight", Shape(64));
    layer("attn_qkv.weight", Shape(64, 128));
    layer("ffn_norm.weight", Shape(64));
    if (i < n_dense) {
      for (const char* name : {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"})
        layer(name, Shape(64, 64)).dense_ffn = true;
      continue;
    }
    layer("ffn_gate_inp.weight", Shape(64, 8));
    for (const char* name : {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"})
      layer(name, Shape(64, 64, 8)).expert = true;
    layer("ffn_down_exps.bias", Shape(64, 8)).expert = true;
    layer("ffn_up_shexp.weight", Shape(64, 64));
  }
  return model;
}

/// The CPU and `n` equal devices CUDA0, CUDA1, ...
inline std::vector<PlanDevice> devices(int n, std::uint64_t free_bytes = std::uint64_t{1} << 30) {
  std::vector<PlanDevice> list(1);
  list[0].name = "CPU";
  list[0].total_bytes = list[0].free_bytes = std::uint64_t{1} << 40;
  list[0].bandwidth = 50e6;  // these models are small: crossings must not count for more than they do in real ones
  for (int i = 0; i < n; ++i) {
    PlanDevice device;
    device.name = "CUDA" + std::to_string(i);
    device.total_bytes = device.free_bytes = free_bytes;
    device.bandwidth = 1e9;
    device.link = 25e9;
    list.push_back(std::move(device));
  }
  return list;
}

inline BufferRule rule(const std::string& pattern, const std::string& buffer) {
  return {NamePattern::compile(pattern).take(), buffer};
}

/// The name of the device that computes with a tensor.
inline std::string device_of(const Plan& plan, const std::string& tensor) {
  for (const TensorPlan& entry : plan.tensors)
    if (entry.name == tensor) return plan.devices[static_cast<std::size_t>(entry.places.front().device.v)].name;
  return "(no such tensor)";
}

}  // namespace llama::testing
