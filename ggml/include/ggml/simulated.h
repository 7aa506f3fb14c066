#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ggml/device.h"

namespace ggml {

/// A device that has a card's name and size and computes on the CPU (--sim-device).
struct SimulatedDeviceSpec {
  std::string name;                // "CUDA0"
  std::uint64_t memory_bytes = 0;  // what it pretends to have
  double bandwidth = 1e12;         // bytes/s of its memory, for the cost model and the virtual clock
  double link = 25e9;              // bytes/s of its link to the host
  double arithmetic = 2e14;        // operations/s
  std::vector<std::string> lacks;  // names of ops and types that it cannot do: their decompositions run
  std::uint64_t seed = 0;          // of the delays before its work; 0: none
};

}  // namespace ggml
