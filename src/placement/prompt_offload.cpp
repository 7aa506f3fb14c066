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

constexpr int kFewest = 2;       // one token is left to the CPU whatever the link can do
constexpr int kUsualBatch = 32;  // where nothing is known of a device

/// Seconds of a step on the CPU, one micro-batch after another.
double host_seconds(const HostWeights& weights, double share, int tokens, const PlanDevice& host, int n_ubatch) {
  const auto seconds = [&](int n) { return seconds_of(weights, share, n, host.bandwidth, host.arithmetic); };
  const int whole = tokens / n_ubatch, rest = tokens % n_ubatch;
  return whole * seconds(n_ubatch) + (rest > 0 ? seconds(rest) : 0.0);
}

/// The smallest step for which a device to which the weights are sent once is faster; 0: none.
int break_even(const HostWeights& weights, double share, const Plan& plan, std::size_t device, int n_ubatch) {
  const PlanDevice& card = plan.devices[device];
  if (weights.bytes <= 0.0 || card.link <= 0.0) return 0;
  const auto gains = [&](int tokens) {
    return seconds_of(weights, share, tokens, card.link, card.arithmetic) <
           host_seconds(weights, share, tokens, plan.devices.front(), n_ubatch);
  };
  // What the link moves does not grow any more once every expert is used, and what the CPU computes does: from the
  // break-even on the device stays ahead.
  constexpr int kLongest = 1 << 20;
  if (!gains(kLongest)) return 0;
  int low = kFewest, high = kLongest;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (gains(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

int smaller_but_not_none(int a, int b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

}  // namespace

std::optional<PromptOffload> prompt_offload(const PlanModel& model, const Plan& plan, const PlacementRules& rules,
                                            const OffloadRequest& request) {
  const DeviceId device = device_of_prompts(plan, rules);
  if (!request.enabled || device.v <= 0 || static_cast<std::size_t>(device.v) >= plan.devices.size())
    return std::nullopt;
  const PlanDevice& card = plan.devices[static_cast<std::size_t>(device.v)];
  HostWeights dense, experts;
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    const PlanTensor& tensor = model.tensors[i];
    const TensorPlan::Place& place = plan.tensors[i].places.front();
    if (place.device.v != 0 || tensor.use != TensorUse::layer || tensor.shape.dims() < 2) continue;
    if (card.streams && !card.streams(tensor.type)) continue;
    HostWeights& sum = tensor.expert ? experts : dense;
    sum.bytes += static_cast<double>(place.bytes);
    sum.elements += static_cast<double>(tensor.shape.elements());
  }
  PromptOffload result;
  result.device = device;
  result.expert_bytes = static_cast<std::uint64_t>(experts.bytes);
  result.bytes = static_cast<std::uint64_t>(dense.bytes) + result.expert_bytes;
  if (result.bytes == 0) return std::nullopt;
  result.has_profile = card.link > 0.0;
  OpOffload& offload = result.offload;
  offload = request.products;
  offload.device = device;
  const auto by_experts = [&](int tokens) {
    return std::max(tokens, static_cast<int>(std::ceil(tokens / model.expert_share - 1e-9)));
  };
  if (request.tokens_per_byte || request.batch_size || request.min_batch || !result.has_profile) {
    const bool plain = request.min_batch && !request.batch_size && !request.tokens_per_byte;
    const int tokens = plain ? *request.min_batch : request.batch_size.value_or(kUsualBatch);
    offload.by_ubatch = true;
    offload.dense_from = std::max(tokens, kFewest);
    offload.experts_from = std::max(plain ? tokens : by_experts(tokens), kFewest);
    offload.tokens_per_byte = request.tokens_per_byte;
  } else {
    const auto d = static_cast<std::size_t>(device.v);
    const int n_ubatch = std::max(std::min(request.n_ubatch, request.n_batch), 1);
    offload.dense_from = break_even(dense, 1.0, plan, d, n_ubatch);
    offload.experts_from = break_even(experts, model.expert_share, plan, d, n_ubatch);
  }
  result.tokens =
      smaller_but_not_none(dense.bytes > 0.0 ? offload.dense_from : 0, experts.bytes > 0.0 ? offload.experts_from : 0);
  return result;
}

}  // namespace llama
