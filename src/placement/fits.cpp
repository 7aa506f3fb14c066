#include "llama/placement.h"
#include "placement/context_use.h"

namespace llama {

namespace {

/// Bytes of the host's weights that are pages of a file.
std::uint64_t mapped_bytes(const Plan& plan) {
  std::uint64_t bytes = 0;
  for (const TensorPlan& tensor : plan.tensors)
    for (const TensorPlan::Place& place : tensor.places)
      if (place.device.v == 0 && place.kind == ggml::BufferKind::mapping) bytes += place.bytes;
  return bytes;
}

}  // namespace

void add_use(const std::vector<std::uint64_t>& kv_per_layer, const std::vector<DeviceUse>& beside, Plan& plan) {
  for (std::size_t d = 0; d < plan.use.size(); ++d) {
    plan.use[d].kv = 0;
    plan.use[d].weights += beside[d].weights;
    plan.use[d].arenas = beside[d].arenas;
    plan.use[d].staging = beside[d].staging;
    plan.use[d].overhead = beside[d].overhead;
  }
  for (std::size_t i = 0; i < kv_per_layer.size(); ++i)
    plan.use[static_cast<std::size_t>(plan.kv_device[i].v)].kv += kv_per_layer[i];
}

void add_context_use(const ContextMemory& memory, int n_ctx, Plan& plan) {
  add_use(memory.kv_per_layer(n_ctx), memory.beside(plan, n_ctx), plan);
}

std::uint64_t shortfall(const Plan& plan, std::size_t device) {
  std::uint64_t needed = plan.use[device].total();
  if (device == 0) needed -= mapped_bytes(plan);
  const std::uint64_t free = plan.devices[device].free_bytes;
  return needed > free ? needed - free : 0;
}

bool fits(const Plan& plan) {
  for (std::size_t d = 0; d < plan.use.size(); ++d)
    if (shortfall(plan, d) > 0) return false;
  return true;
}

}  // namespace llama
