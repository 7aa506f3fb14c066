#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ggml/device.h"
#include "ggml/threads.h"

namespace ggml {

/// Where and how the threads of a kind of step run; the fields of ThreadPoolOptions that have these names.
struct CpuTeam {
  std::vector<int> affinity;
  bool pin_each = false;
  ThreadPriority priority = ThreadPriority::normal;
  int poll = 50;
  bool operator==(const CpuTeam&) const = default;
};

struct CpuOptions {
  int n_threads = 0;        // decode; 0: physical cores
  int n_threads_batch = 0;  // prompt; 0: as n_threads
  CpuTeam team;
  std::optional<CpuTeam> batch_team;  // of prompts: threads of their own; nothing: those of `team`
  std::string isa;  // "" = best of this machine; else "scalar", "avx2", "avx512", ...; unknown or missing: Error
};

/// The CPU device. It owns its threads, which live as long as the device.
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

}  // namespace ggml
