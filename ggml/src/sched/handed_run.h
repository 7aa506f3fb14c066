#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ggml/device.h"
#include "ggml/scheduler.h"
#include "sched/lanes.h"
#include "sched/scheduled_program.h"

namespace ggml::sched {

/// The device with which the CPU shares a program so that results are handed over; 0: copies and events are better,
/// since there are several devices, or much to copy.
[[nodiscard]] int device_to_hand_over_with(const ScheduledProgram& program);

/// Runs a program of which parts are the CPU's and the others one device's. While the CPU has its turn the device has
/// the work behind that already, held up by a HandOver, and it goes on as soon as the CPU is done.
class HandedRun {
 public:
  HandedRun(Lanes& lanes, HandOver& hand_over, SchedulerStats& stats)
      : lanes_(lanes), hand_over_(hand_over), stats_(stats) {}

  /// Pre: device_to_hand_over_with(program) > 0. After an error the device may still be held up: settle.
  void run(ScheduledProgram& program, const StepCounts& counts, const StopToken& stop);

 private:
  void give_to_device(ScheduledProgram::Part& part);
  [[nodiscard]] std::span<const HostCopy> sized(const std::vector<BoundCopy>& copies);

  Lanes& lanes_;
  HandOver& hand_over_;
  SchedulerStats& stats_;
  StepCounts counts_;
  std::optional<HandOver::Ticket> given_;
  std::vector<HostCopy> copies_;
};

}  // namespace ggml::sched
