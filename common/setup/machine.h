#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/args/settings.h"
#include "common/setup/trace_file.h"
#include "ggml/device.h"
#include "llama/plan.h"

namespace common {

/// The devices of a run: the CPU, then the GPUs that -dev names, in its order; without -dev all, simulated ones last.
struct Machine {
  std::shared_ptr<TraceFile> trace;  // --trace; outlives the devices, whose threads write to it
  bool virtual_time = false;         // the trace shows what work would take on simulated devices
  std::vector<std::unique_ptr<ggml::Device>> devices;
  std::vector<llama::PlanDevice> descriptions;  // of the same devices
  std::string why_no_gpu;                       // empty when there is one

  [[nodiscard]] ggml::Device& cpu() const { return *devices.front(); }
  [[nodiscard]] std::vector<ggml::Device*> pointers() const;
};

/// Opens them. Throws Error: invalid_argument for a device that does not exist (naming those that do), a simulated one
/// with the name of a real one, an unknown ISA level.
[[nodiscard]] Machine open_machine(const Settings& settings);

/// What --list-devices prints: a line per GPU; with `details` what the start-up log says of each.
void print_devices(const Settings& settings, bool details);

}  // namespace common
