#include "model/device_memory.h"

#include <algorithm>

#include "ggml/log.h"

namespace llama {

namespace {

constexpr std::size_t kDeviceAlign = 256;

}  // namespace

DeviceMemory::DeviceMemory(std::span<ggml::Device* const> devices, const WeightPlaces& places, std::size_t first,
                           ModelWeights& weights)
    : devices_(devices), places_(places), next_(devices.size(), nullptr) {
  std::vector<std::size_t> bytes(devices.size(), 0);
  for (std::size_t i = first; i < weights.tensors.size(); ++i)
    for (const ggml::DeviceId device : places.of(weights.tensors[i]))
      bytes[static_cast<std::size_t>(device.v)] += bytes_on(device, weights.tensors[i]);
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if (bytes[d] == 0) continue;
    weights.buffers.push_back(devices[d]->allocate(bytes[d], ggml::BufferKind::device));
    next_[d] = weights.buffers.back()->data();
    total_bytes_ += bytes[d];
    ggml::logf(ggml::LogLevel::info, "weights device=%s bytes=%zu", devices[d]->name().c_str(), bytes[d]);
  }
}

std::size_t DeviceMemory::bytes_on(ggml::DeviceId device, const ggml::Weight& weight) const {
  const std::size_t bytes = devices_[static_cast<std::size_t>(device.v)]->weight_bytes(weight.type, weight.shape);
  return (bytes + kDeviceAlign - 1) / kDeviceAlign * kDeviceAlign;
}

bool DeviceMemory::is_on_host(const ggml::Weight& weight) const {
  const std::vector<ggml::DeviceId>& places = places_.of(weight);
  return std::any_of(places.begin(), places.end(),
                     [&](ggml::DeviceId device) { return bytes_on(device, weight) == 0; });
}

std::size_t DeviceMemory::load(ggml::Weight& weight, const std::byte* src) {
  std::size_t total = 0;
  for (const ggml::DeviceId id : places_.of(weight)) {
    const std::size_t bytes = bytes_on(id, weight);
    if (bytes == 0) continue;
    const auto d = static_cast<std::size_t>(id.v);
    devices_[d]->load_weight(weight.type, weight.shape, src, next_[d]);
    ggml::Placement placement;
    placement.device = devices_[d]->id();
    placement.kind = ggml::BufferKind::device;
    placement.data = next_[d];
    weight.placements.push_back(placement);
    next_[d] += bytes;
    total += bytes;
  }
  return total;
}

}  // namespace llama
