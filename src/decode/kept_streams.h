#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "decode/ports.h"
#include "ggml/device.h"

namespace llama {

/// Room for the residual streams of all micro-batches of a step, for when its layers are walked one after another: on
/// each device that a stream lies on between layers.
class KeptStreams {
 public:
  KeptStreams() = default;
  KeptStreams(const PortHomes& homes, std::size_t ubatch_bytes, int n_ubatches);

  [[nodiscard]] std::byte* at(ggml::DeviceId device, std::size_t ubatch) const {
    return buffers_[static_cast<std::size_t>(device.v)]->data() + ubatch * ubatch_bytes_;
  }

  /// On one device.
  [[nodiscard]] std::size_t bytes(ggml::DeviceId device) const {
    const auto d = static_cast<std::size_t>(device.v);
    return d < buffers_.size() && buffers_[d] != nullptr ? buffers_[d]->bytes() : 0;
  }

 private:
  std::size_t ubatch_bytes_ = 0;
  std::vector<std::unique_ptr<ggml::Buffer>> buffers_;  // per device; null: no stream lies there
};

}  // namespace llama
