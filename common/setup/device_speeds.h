#pragma once

#include "ggml/device.h"

namespace common {

/// What a device was found to do, in bytes and operations per second.
struct DeviceSpeeds {
  double bandwidth = 0;   // at which it reads its memory
  double link = 0;        // between pinned host memory and its own, the way in; the CPU: 0
  double arithmetic = 0;  // of products with 8-bit weights in prompts
  bool operator==(const DeviceSpeeds&) const = default;
};

/// Measures the CPU with the threads that it decodes with; takes a second or two and 1 GiB of memory. Throws Error
/// (out_of_memory).
[[nodiscard]] DeviceSpeeds measure_cpu(ggml::Device& cpu, const std::string& isa, int n_threads);

/// Measures a card, with a tenth of its free memory at most. Throws DeviceError.
[[nodiscard]] DeviceSpeeds measure_card(ggml::Device& card);

}  // namespace common
