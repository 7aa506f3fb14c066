#pragma once

#include <memory>
#include <vector>

#include "decode/offload_rules.h"
#include "ggml/device.h"

namespace llama {

/// The host memory that weights are sent from, pinned for the device that computes with them. Thread-compatible.
class StreamedMemory {
 public:
  StreamedMemory() = default;
  /// `device` is borrowed; the weights' memory outlives this.
  explicit StreamedMemory(ggml::Device& device) : device_(&device) {}

  /// Pins what the rules may send, the first time that something is sent: it reads the pages of a mapped file that
  /// nobody has used yet, which a start should not wait for.
  void pin(const OffloadRules& rules);

 private:
  ggml::Device* device_ = nullptr;
  bool done_ = false;
  std::vector<std::unique_ptr<ggml::PinnedMemory>> pinned_;
};

}  // namespace llama
