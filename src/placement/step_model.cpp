#include "placement/step_model.h"

#include <algorithm>

namespace llama {

double read_share(const PlanModel& model, const PlanTensor& tensor) {
  if (tensor.expert) return model.expert_share;
  // One row of the embedding.
  if (tensor.use == TensorUse::input || tensor.use == TensorUse::every_layer) return 0.0;
  return 1.0;
}

double decode_seconds(const PlanModel& model, const Plan& plan, const std::vector<std::uint64_t>& kv_read_per_layer) {
  double seconds = 0.0;
  const auto time = [&](ggml::DeviceId device, double bytes) {
    const double bandwidth = plan.devices[static_cast<std::size_t>(device.v)].bandwidth;
    return bandwidth > 0.0 ? bytes / bandwidth : 0.0;
  };
  std::vector<bool> experts_elsewhere(plan.layer_device.size(), false);
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    const PlanTensor& tensor = model.tensors[i];
    // A tied head reads the copy that the head computes with.
    const TensorPlan::Place& place = plan.tensors[i].places.back();
    seconds += time(place.device, read_share(model, tensor) * static_cast<double>(place.bytes));
    if (tensor.expert && place.device != plan.layer_device[static_cast<std::size_t>(tensor.layer)])
      experts_elsewhere[static_cast<std::size_t>(tensor.layer)] = true;
  }
  int crossings = 0;
  for (std::size_t i = 0; i < plan.layer_device.size(); ++i) {
    if (i < kv_read_per_layer.size()) seconds += time(plan.kv_device[i], static_cast<double>(kv_read_per_layer[i]));
    const ggml::DeviceId next = i + 1 < plan.layer_device.size() ? plan.layer_device[i + 1] : plan.output_device;
    crossings += (next != plan.layer_device[i] ? 1 : 0) + (experts_elsewhere[i] ? 2 : 0) +
                 (plan.kv_device[i] != plan.layer_device[i] ? 2 : 0);
  }
  return seconds + crossings * kCrossingSeconds;
}

}  // namespace llama
