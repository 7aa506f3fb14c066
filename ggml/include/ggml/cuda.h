#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ggml/device.h"

namespace ggml {

/// What the machine has for CUDA, as the driver numbers it (CUDA_VISIBLE_DEVICES is the driver's business).
struct CudaDevices {
  std::vector<std::unique_ptr<Device>> devices;  // named CUDA0, CUDA1, ...
  std::string problem;  // why there is none: built without CUDA, no driver, driver too old, no card; empty otherwise
};

/// Finds the cards and opens each. Never throws: a machine without a usable card runs on the CPU. `per_card` > 1 makes
/// so many devices of each card, numbered card by card, which share its memory and kernels: for tests of what several
/// cards need.
[[nodiscard]] CudaDevices find_cuda_devices(int per_card = 1);

}  // namespace ggml
