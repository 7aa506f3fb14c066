#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ggml/device.h"
#include "ggml/scheduler.h"
#include "ggml/trace.h"
#include "sched/follower.h"
#include "sched/scheduled_program.h"

namespace ggml::sched {

/// The executors of a scheduler, and the order among them in which they touch host memory.
///
/// Each device does its own work in order. Between devices only host memory is shared, so one rule is enough: before a
/// device (or the host) touches it, it waits for what the others were given to do with it before. A device's event
/// stands for its last such piece of work.
class Lanes {
 public:
  explicit Lanes(std::vector<std::unique_ptr<Executor>> executors);
  [[nodiscard]] bool traced() const { return trace_ != nullptr; }
  /// From now on takes down what runs when, under the devices' names. `trace` is borrowed.
  void trace_to(Trace& trace, std::span<Device* const> devices);

  [[nodiscard]] Executor& executor(int device) { return *lanes_[static_cast<std::size_t>(device)].executor; }
  [[nodiscard]] std::size_t size() const { return lanes_.size(); }

  /// `device` goes on when all others are done with the host memory they were given so far. For device 0 the calling
  /// thread waits.
  void wait_for_others(int device);
  /// The fast way between the host and a device, which the first call makes. Null: it has none.
  [[nodiscard]] HandOver* hand_over(int device);
  /// What was given to `device` so far touches host memory.
  void touched(int device);
  void run(int device, Program& program, const std::string& label, const StepCounts& counts, const StopToken& stop);
  void copy(const std::vector<BoundCopy>& copies, const StepCounts& counts, SchedulerStats& stats);
  void mark(std::size_t number);
  void wait_for_mark(std::size_t number);
  /// Waits for all; throws the first failure.
  void synchronise();
  /// The same after an error: what else failed is of no interest.
  void settle() noexcept;

 private:
  struct Lane {
    std::unique_ptr<Executor> executor;
    std::unique_ptr<HandOver> hand_over;
    bool has_hand_over = true;  // or may have
    std::unique_ptr<Event> touched;
    std::array<std::unique_ptr<Event>, Scheduler::kMarks> marks;
    std::uint64_t number = 0;            // of the last touch
    std::vector<std::uint64_t> seen;     // per other lane: the last touch that was waited for
    std::string name;                    // this and the next one: only while there is a trace
    std::unique_ptr<Follower> follower;  // null: work is done when the executor returns
  };
  void copy(const BoundCopy& copy, std::size_t bytes);
  void take_down(Lane& lane, std::string name, const std::string& what, double given);

  std::vector<Lane> lanes_;
  Trace* trace_ = nullptr;
};

}  // namespace ggml::sched
