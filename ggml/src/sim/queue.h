#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "ggml/device.h"
#include "ggml/simulated.h"
#include "sim/guarded_memory.h"

namespace ggml::sim {

/// A point in a queue. Keeps the failure of what came before it.
class QueueEvent final : public Event {
 public:
  explicit QueueEvent(std::shared_ptr<SimulatedTime> time) : time_(std::move(time)) {}

  void wait() override;
  [[nodiscard]] bool ready() override;

 private:
  friend class Queue;
  /// The next recording; waiting for it is waiting for this number.
  [[nodiscard]] std::uint64_t announce();
  [[nodiscard]] double& seconds_at(std::uint64_t number) { return seconds_[number % kRemembered]; }
  void reach(std::uint64_t number, double seconds, const std::exception_ptr& failure);
  /// Waits on behalf of another queue; returns the time of the point. What failed there is that queue's business.
  [[nodiscard]] double wait_in_queue(std::uint64_t number);
  [[nodiscard]] std::uint64_t announced();

  std::mutex mutex_;
  std::condition_variable reached_;
  std::uint64_t announced_ = 0;
  std::uint64_t number_ = 0;
  // Of the last recordings, by number: a queue that waits for one may look when the event was recorded again.
  static constexpr std::size_t kRemembered = 256;
  std::array<double, kRemembered> seconds_{};
  std::exception_ptr failure_;
  std::shared_ptr<SimulatedTime> time_;
};

/// The thread of a simulated device and the work it does in order. The device's memory is open while it works and shut
/// between two pieces of work. After a failure the rest is skipped until drain() has reported it.
class Queue {
 public:
  Queue(const SimulatedDeviceSpec& spec, GuardedMemory& memory, std::shared_ptr<SimulatedTime> time);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// What a piece of work costs in virtual time, and how the trace calls it.
  struct Label {
    const char* lane = "";  // behind the device's name
    std::string name;
    double seconds = 0;
  };
  void push(std::function<void()> work, Label label);
  void record(QueueEvent& event);
  void wait_for(QueueEvent& event);
  /// What is pushed later waits until the host opens the gate, which opens for all that was held by it before.
  void hold(QueueEvent& gate);
  static void open(QueueEvent& gate);
  /// Waits until everything is done; throws what it threw, once.
  void drain();
  /// Does `work` behind everything pushed so far and waits for it.
  void perform(std::function<void()> work, Label label);

 private:
  struct Command {
    std::function<void()> work;
    QueueEvent* event = nullptr;
    std::uint64_t number = 0;  // of the event
    bool waits = false;        // for the event, or else reaches it
    Label label;
    double issued = 0;
  };

  void put(Command command);
  void put_event(QueueEvent& event, std::uint64_t number, bool waits);
  void main();
  void execute(Command& command);
  void delay();

  const std::string name_;
  GuardedMemory& memory_;
  std::shared_ptr<SimulatedTime> time_;
  std::uint64_t random_;  // of the delays; 0: none

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Command> commands_;
  bool busy_ = false;
  bool quit_ = false;
  std::exception_ptr failure_;

  double clock_ = 0;  // of the device; its thread's own
  std::thread thread_;
};

}  // namespace ggml::sim
