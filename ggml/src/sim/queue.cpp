#include "sim/queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ggml::sim {

void QueueEvent::wait() {
  std::unique_lock lock(mutex_);
  const std::uint64_t number = announced_;
  reached_.wait(lock, [&] { return number_ >= number; });
  if (time_ != nullptr) time_->host_reaches(seconds_at(number));
  if (failure_) std::rethrow_exception(failure_);
}

bool QueueEvent::ready() {
  const std::scoped_lock lock(mutex_);
  return number_ >= announced_;
}

std::uint64_t QueueEvent::announce() {
  const std::scoped_lock lock(mutex_);
  return ++announced_;
}

std::uint64_t QueueEvent::announced() {
  const std::scoped_lock lock(mutex_);
  return announced_;
}

void QueueEvent::reach(std::uint64_t number, double seconds, const std::exception_ptr& failure) {
  const std::scoped_lock lock(mutex_);
  number_ = number;
  seconds_at(number) = seconds;
  failure_ = failure;
  reached_.notify_all();
}

double QueueEvent::wait_in_queue(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  reached_.wait(lock, [&] { return number_ >= number; });
  return seconds_at(number);
}

Queue::Queue(const SimulatedDeviceSpec& spec, GuardedMemory& memory, std::shared_ptr<SimulatedTime> time)
    : name_(spec.name), memory_(memory), time_(std::move(time)), random_(spec.seed), thread_([this] { main(); }) {}

Queue::~Queue() {
  {
    const std::scoped_lock lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Queue::put(Command command) {
  if (time_ != nullptr) command.issued = time_->host();
  {
    const std::scoped_lock lock(mutex_);
    commands_.push_back(std::move(command));
  }
  changed_.notify_all();
}

void Queue::push(std::function<void()> work, Label label) {
  Command command;
  command.work = std::move(work);
  command.label = std::move(label);
  put(std::move(command));
}

void Queue::put_event(QueueEvent& event, std::uint64_t number, bool waits) {
  Command command;
  command.event = &event;
  command.number = number;
  command.waits = waits;
  put(std::move(command));
}

void Queue::record(QueueEvent& event) {
  put_event(event, event.announce(), false);
}

void Queue::wait_for(QueueEvent& event) {
  put_event(event, event.announced(), true);
}

void Queue::hold(QueueEvent& gate) {
  put_event(gate, gate.announce(), true);
}

void Queue::open(QueueEvent& gate) {
  gate.reach(gate.announced(), gate.time_ == nullptr ? 0.0 : gate.time_->host(), nullptr);
}

void Queue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return commands_.empty() && !busy_; });
  if (time_ != nullptr) time_->host_reaches(clock_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Queue::perform(std::function<void()> work, Label label) {
  push(std::move(work), std::move(label));
  drain();
}

void Queue::main() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return quit_ || !commands_.empty(); });
    if (commands_.empty()) return;
    Command command = std::move(commands_.front());
    commands_.pop_front();
    busy_ = true;
    lock.unlock();
    execute(command);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Queue::execute(Command& command) {
  if (command.event != nullptr) {
    if (command.waits)
      clock_ = std::max(clock_, command.event->wait_in_queue(command.number));
    else
      command.event->reach(command.number, clock_, failure_);
    return;
  }
  delay();
  if (failure_) return;
  try {
    const GuardedMemory::Access access(memory_);
    command.work();
  } catch (...) {
    // Only this thread sets it, and nobody takes it while there is work.
    failure_ = std::current_exception();
  }
  if (time_ == nullptr) return;
  const double begin = std::max(clock_, command.issued);
  clock_ = begin + command.label.seconds;
  time_->add({name_ + command.label.lane, std::move(command.label.name), begin, clock_});
}

/// Sleeps now and then, so that whoever does not wait for this device's work is there before it is done.
void Queue::delay() {
  if (random_ == 0) return;
  constexpr std::uint64_t kLongestMicroseconds = 200;
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  if (random_ % 3 != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds((random_ >> 20) % kLongestMicroseconds));
}

}  // namespace ggml::sim
