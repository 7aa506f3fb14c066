#include "llama/context_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "decode/segments.h"
#include "ggml/log.h"
#include "model/hparams.h"
#include "model/weights.h"
#include "placement/counting_device.h"

namespace llama {

namespace {

/// Nothing but errors is logged while this lives: a context that is made to be measured is none.
class QuietLog {
 public:
  QuietLog() {
    for (const ggml::LogLevel level :
         {ggml::LogLevel::warn, ggml::LogLevel::info, ggml::LogLevel::debug, ggml::LogLevel::trace})
      if (ggml::log_enabled(level)) before_ = level;
    ggml::set_log_level(ggml::LogLevel::error);
  }
  ~QuietLog() { ggml::set_log_level(before_); }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  ggml::LogLevel before_ = ggml::LogLevel::error;
};

/// Everything about a plan that a context's memory depends on.
std::vector<std::int32_t> signature(const Plan& plan) {
  std::vector<std::int32_t> numbers{plan.input_device.v, plan.output_device.v};
  for (const ggml::DeviceId device : plan.layer_device) numbers.push_back(device.v);
  for (const ggml::DeviceId device : plan.kv_device) numbers.push_back(device.v);
  for (const TensorPlan& tensor : plan.tensors) numbers.push_back(tensor.places.front().device.v);
  return numbers;
}

ContextParams with_context(ContextParams params, const Hparams& hparams, int n_ctx) {
  // Sizes beyond the context's own limit are left to its check.
  const int whole = n_ctx / ggml::kKvBlockTokens * ggml::kKvBlockTokens;
  const bool fits = whole == n_ctx || whole <= std::numeric_limits<int>::max() - ggml::kKvBlockTokens;
  params.n_ctx = whole == n_ctx || !fits ? n_ctx : whole + ggml::kKvBlockTokens;
  params.n_ubatch = std::min(params.n_ubatch, params.n_batch);
  if (hparams.is_encoder) params.k_type = params.v_type = ggml::DType::f32;
  return params;
}

class Measurer {
 public:
  Measurer(Model& outline, std::vector<ggml::Device*> devices, const std::vector<PlanDevice>& descriptions,
           const ContextParams& params, std::function<OpOffload(const Plan&)> offload_of)
      : outline_(outline),
        devices_(std::move(devices)),
        descriptions_(descriptions),
        params_(params),
        offload_of_(std::move(offload_of)) {}

  [[nodiscard]] std::vector<std::uint64_t> kv_per_layer(int n_ctx) {
    const Hparams& hparams = outline_.hparams();
    const ContextParams params = with_context(params_, hparams, n_ctx);
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(hparams.n_layer), 0);
    for (const KvGroupSpec& group : plan_kv_groups(hparams, params))
      for (const LayerId layer : group.layers)
        bytes[static_cast<std::size_t>(layer.v)] =
            static_cast<std::uint64_t>(group.n_blocks) * group.layout.block_bytes();
    if (const std::optional<StateSpec> states = plan_states(hparams, params))
      for (const LayerId layer : states->layers)
        bytes[static_cast<std::size_t>(layer.v)] = state_layer_bytes(*states, params.n_seq_max);
    return bytes;
  }

  [[nodiscard]] std::vector<DeviceUse> beside(const Plan& plan, int n_ctx) {
    auto key = std::make_pair(n_ctx, signature(plan));
    const auto known = measured_.find(key);
    if (known != measured_.end()) return known->second;
    return measured_.emplace(std::move(key), measure(plan, n_ctx)).first->second;
  }

 private:
  [[nodiscard]] std::vector<DeviceUse> measure(const Plan& plan, int n_ctx) {
    const QuietLog quiet;
    outline_.place_outline(plan);
    std::vector<std::unique_ptr<CountingDevice>> counting;
    std::vector<ggml::Device*> borrowed;
    for (ggml::Device* device : devices_)
      borrowed.push_back(counting.emplace_back(std::make_unique<CountingDevice>(*device)).get());
    ContextParams params = with_context(params_, outline_.hparams(), n_ctx);
    if (offload_of_) params.offload = offload_of_(plan);
    const Context context(outline_, borrowed, plan, params);
    const std::vector<std::uint64_t> kv = kv_per_layer(n_ctx);
    std::vector<DeviceUse> use(devices_.size());
    for (std::size_t d = 0; d < use.size(); ++d) {
      std::uint64_t cache = 0;
      for (std::size_t i = 0; i < kv.size(); ++i)
        if (static_cast<std::size_t>(plan.kv_device[i].v) == d) cache += kv[i];
      use[d].arenas = counting[d]->device_bytes() - std::min(cache, counting[d]->device_bytes());
      if (d > 0 && params.offload.device.v == static_cast<int>(d)) {
        use[d].staging = std::min(context.stats().staging_bytes, use[d].arenas);
        use[d].arenas -= use[d].staging;
      }
      // Host memory that belongs to a device's work is the CPU's all the same.
      use[0].staging += counting[d]->host_bytes();
      use[d].weights = copied_bytes(plan, d);
      if (counting[d]->device_bytes() + plan.use[d].weights > 0) use[d].overhead = descriptions_[d].overhead_bytes;
    }
    return use;
  }

  /// Weights that a device gets beside those of the plan: biases with their matrices, and the like.
  [[nodiscard]] std::uint64_t copied_bytes(const Plan& plan, std::size_t device) const {
    if (device == 0) return host_copies(plan);
    constexpr std::uint64_t kAlign = 256;
    std::uint64_t bytes = 0;
    for (const ggml::Weight& weight : outline_.weights().tensors)
      for (const ggml::Placement& placement : weight.placements)
        if (static_cast<std::size_t>(placement.device.v) == device)  // never the pages of the file: those are the CPU's
          bytes += (devices_[device]->weight_bytes(weight.type, weight.shape) + kAlign - 1) / kAlign * kAlign;
    return bytes - std::min(bytes, plan.use[device].weights);
  }

  /// What the host keeps of weights that are planned elsewhere; pages of the file are no copies.
  [[nodiscard]] std::uint64_t host_copies(const Plan& plan) const {
    std::uint64_t held = 0, planned = 0;
    for (const ggml::Weight& weight : outline_.weights().tensors)
      for (const ggml::Placement& placement : weight.placements)
        if (placement.kind == ggml::BufferKind::host_pageable) held += ggml::tensor_bytes(weight.type, weight.shape);
    for (const TensorPlan& tensor : plan.tensors)
      for (const TensorPlan::Place& place : tensor.places)
        if (place.device.v == 0 && place.kind != ggml::BufferKind::mapping) planned += place.bytes;
    return held - std::min(held, planned);
  }

  Model& outline_;
  std::vector<ggml::Device*> devices_;
  const std::vector<PlanDevice>& descriptions_;
  ContextParams params_;
  std::function<OpOffload(const Plan&)> offload_of_;
  std::map<std::pair<int, std::vector<std::int32_t>>, std::vector<DeviceUse>> measured_;
};

}  // namespace

ContextMemory context_memory(Model& outline, std::vector<ggml::Device*> devices,
                             const std::vector<PlanDevice>& descriptions, const ContextParams& params,
                             std::function<OpOffload(const Plan&)> offload_of) {
  const auto measurer =
      std::make_shared<Measurer>(outline, std::move(devices), descriptions, params, std::move(offload_of));
  return {[measurer](int n_ctx) { return measurer->kv_per_layer(n_ctx); },
          [measurer](const Plan& plan, int n_ctx) { return measurer->beside(plan, n_ctx); }};
}

}  // namespace llama
