#include "decode/kept_streams.h"

namespace llama {

KeptStreams::KeptStreams(const PortHomes& homes, std::size_t ubatch_bytes, int n_ubatches)
    : ubatch_bytes_(ubatch_bytes), buffers_(homes.devices.size()) {
  for (const ggml::DeviceId home : homes.layer_streams) {
    const auto d = static_cast<std::size_t>(home.v);
    if (buffers_[d] != nullptr) continue;
    ggml::Device& device = d == 0 ? homes.host() : *homes.devices[d];
    buffers_[d] = device.allocate(ubatch_bytes * static_cast<std::size_t>(n_ubatches),
                                  d == 0 ? ggml::BufferKind::host_pinned : ggml::BufferKind::device);
  }
}

}  // namespace llama
