#include <algorithm>
#include <cmath>

#include "llama/placement.h"

namespace llama {

namespace {

using ggml::DeviceId;

/// Weights in host memory that products read.
struct HostWeights {
  double bytes = 0, elements = 0;
};

/// Seconds of a micro-batch of `tokens` with weights of which each token uses `share`: as long as the slower of
/// fetching what is used at all and computing.
double seconds_of(const HostWeights& weights, double share, double tokens, double bandwidth, double arithmetic) {
  const double touched = 1.0 - std::pow(1.0 - share, tokens);
  const double reading = bandwidth > 0.0 ? weights.bytes * touched / bandwidth : 0.0;
  const double computing = arithmetic > 0.0 ? 2.0 * weights.elements * share * tokens / arithmetic : 0.0;
  return std::max(reading, computing);
}

/// The device that does such work; 0: none.
DeviceId device_of_prompts(const Plan& plan, const PlacementRules& rules) {
  if (rules.main_gpu) return DeviceId(*rules.main_gpu < 0 ? 0 : *rules.main_gpu + 1);
  std::size_t best = 0;
  for (std::size_t d = 1; d < plan.devices.size(); ++d)
    if (best == 0 || plan.devices[d].link > plan.devices[best].link) best = d;
  return DeviceId(static_cast<int>(best));
}

}  // namespace

std::optional<PromptOffload> prompt_offload(const PlanModel& model, const Plan& plan, const PlacementRules& rules) {
  const DeviceId device = device_of_prompts(plan, rules);
  if (device.v <= 0 || static_cast<std::size_t>(device.v) >= plan.devices.size()) return std::nullopt;
  HostWeights dense, experts;
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    const PlanTensor& tensor = model.tensors[i];
    const TensorPlan::Place& place = plan.tensors[i].places.front();
    if (place.device.v != 0 || tensor.use != TensorUse::layer || tensor.shape.dims() < 2) continue;
    HostWeights& sum = tensor.expert ? experts : dense;
    sum.bytes += static_cast<double>(place.bytes);
    sum.elements += static_cast<double>(tensor.shape.elements());
  }
  PromptOffload offload{device, static_cast<std::uint64_t>(dense.bytes + experts.bytes), 0};
  if (offload.bytes == 0) return std::nullopt;
  const PlanDevice& host = plan.devices.front();
  const PlanDevice& card = plan.devices[static_cast<std::size_t>(device.v)];
  const auto gains = [&](int tokens) {
    const double t = tokens;
    const auto both = [&](double bandwidth, double arithmetic) {
      return seconds_of(dense, 1.0, t, bandwidth, arithmetic) +
             seconds_of(experts, model.expert_share, t, bandwidth, arithmetic);
    };
    return card.link > 0.0 && both(card.link, card.arithmetic) < both(host.bandwidth, host.arithmetic);
  };
  // What the link moves does not grow any more once every expert is used, and what the CPU computes does: from the
  // break-even on the device stays ahead.
  constexpr int kLongest = 1 << 20;
  if (!gains(kLongest)) return offload;
  // One token is left to the CPU whatever the link can do.
  int low = 2, high = kLongest;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (gains(middle))
      high = middle;
    else
      low = middle + 1;
  }
  offload.tokens = high;
  return offload;
}

}  // namespace llama
