#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ggml/device.h"

namespace ggml {

class ThreadPool;

struct CpuOptions {
  int n_threads = 0;          // decode; 0: physical cores
  int n_threads_batch = 0;    // prompt; 0: as n_threads
  std::vector<int> affinity;  // core of each worker; empty: not pinned
  std::string isa;  // "" = best of this machine; else "scalar", "avx2", "avx512", ...; unknown or missing: Error
  int poll = 50;    // 0..100: how long workers spin for work before they park
};

/// The CPU device. It owns its thread pool, whose workers live as long as the device.
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

}  // namespace ggml
