#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ggml/device.h"
#include "model/weight_places.h"
#include "model/weights.h"

namespace llama {

/// Memory for copies of weights on the devices that keep them in their own memory and form: one buffer per device,
/// which the model owns.
class DeviceMemory {
 public:
  /// Allocates for the weights from number `first` of `weights.tensors` on. Throws DeviceError.
  DeviceMemory(std::span<ggml::Device* const> devices, const WeightPlaces& places, std::size_t first,
               ModelWeights& weights);

  /// Bytes on all devices.
  [[nodiscard]] std::size_t total_bytes() const { return total_bytes_; }
  /// Whether a device reads the weight in host memory.
  [[nodiscard]] bool is_on_host(const ggml::Weight& weight) const;
  /// Copies a weight from host memory to its devices and notes the placements; returns the bytes on them.
  std::size_t load(ggml::Weight& weight, const std::byte* src);

 private:
  [[nodiscard]] std::size_t bytes_on(ggml::DeviceId device, const ggml::Weight& weight) const;

  std::span<ggml::Device* const> devices_;
  const WeightPlaces& places_;
  std::vector<std::byte*> next_;  // per device
  std::size_t total_bytes_ = 0;
};

}  // namespace llama
