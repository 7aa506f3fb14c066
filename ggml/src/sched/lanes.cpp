#include "sched/lanes.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "ggml/log.h"

namespace ggml::sched {

Lanes::Lanes(std::vector<std::unique_ptr<Executor>> executors) {
  for (std::unique_ptr<Executor>& executor : executors) {
    Lane lane;
    lane.touched = executor->make_event();
    for (std::unique_ptr<Event>& mark : lane.marks) mark = executor->make_event();
    lane.executor = std::move(executor);
    lane.seen.resize(executors.size(), 0);
    lanes_.push_back(std::move(lane));
  }
}

void Lanes::trace_to(Trace& trace, std::span<Device* const> devices) {
  trace_ = &trace;
  for (std::size_t d = 0; d < lanes_.size(); ++d) {
    lanes_[d].name = devices[d]->name();
    if (!devices[d]->memory_is_host()) lanes_[d].follower = std::make_unique<Follower>(*lanes_[d].executor, trace);
  }
}

void Lanes::take_down(Lane& lane, std::string name, const std::string& what, double given) {
  if (lane.follower != nullptr)
    lane.follower->follow(std::move(name), what, given);
  else
    trace_->add({std::move(name), what, given, trace_->now()});
}

void Lanes::run(int device, Program& program, const std::string& label, const StepCounts& counts,
                const StopToken& stop) {
  Lane& lane = lanes_[static_cast<std::size_t>(device)];
  const double given = trace_ == nullptr ? 0.0 : trace_->now();
  lane.executor->run(program, counts, stop);
  if (trace_ != nullptr) take_down(lane, lane.name, label, given);
}

void Lanes::wait_for_others(int device) {
  Lane& self = lanes_[static_cast<std::size_t>(device)];
  // Lane 0 is the host: what it did is done.
  for (std::size_t other = 1; other < lanes_.size(); ++other) {
    Lane& lane = lanes_[other];
    if (other == static_cast<std::size_t>(device)) continue;
    if (std::max(self.seen[other], lanes_[0].seen[other]) >= lane.number) continue;
    self.executor->wait_for(*lane.touched);
    self.seen[other] = lane.number;
  }
}

HandOver* Lanes::hand_over(int device) {
  Lane& lane = lanes_[static_cast<std::size_t>(device)];
  if (lane.hand_over == nullptr && lane.has_hand_over) {
    lane.hand_over = lane.executor->make_hand_over();
    lane.has_hand_over = lane.hand_over != nullptr;
  }
  return lane.hand_over.get();
}

void Lanes::touched(int device) {
  if (device == 0) return;
  Lane& lane = lanes_[static_cast<std::size_t>(device)];
  lane.executor->record(*lane.touched);
  ++lane.number;
}

void Lanes::copy(const std::vector<BoundCopy>& copies, const StepCounts& counts, SchedulerStats& stats) {
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const BoundCopy& c = copies[i];
    const bool is_first = i == 0 || copies[i - 1].device != c.device;
    if (is_first) wait_for_others(c.device);
    const std::size_t bytes = c.bytes_of(counts);
    if (bytes > 0) copy(c, bytes);
    LinkUse& link = stats.links[static_cast<std::size_t>(c.device)];
    (c.to_device ? link.bytes_in : link.bytes_out) += bytes;
    ++(c.to_device ? link.copies_in : link.copies_out);
    if (i + 1 == copies.size() || copies[i + 1].device != c.device) touched(c.device);
  }
}

void Lanes::copy(const BoundCopy& copy, std::size_t bytes) {
  Lane& lane = lanes_[static_cast<std::size_t>(copy.device)];
  const double given = trace_ == nullptr ? 0.0 : trace_->now();
  lane.executor->copy(copy.dst, copy.src, bytes);
  if (trace_ != nullptr) take_down(lane, lane.name + " link", strf("%zu bytes", bytes), given);
}

void Lanes::mark(std::size_t number) {
  for (Lane& lane : lanes_) lane.executor->record(*lane.marks[number]);
}

void Lanes::wait_for_mark(std::size_t number) {
  for (Lane& lane : lanes_) lane.marks[number]->wait();
}

void Lanes::synchronise() {
  std::exception_ptr failure;
  for (Lane& lane : lanes_) {
    try {
      // After an error it may be held up.
      if (lane.hand_over != nullptr) lane.hand_over->open();
      lane.executor->synchronise();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[0].seen[i] = lanes_[i].number;
  if (failure) std::rethrow_exception(failure);
}

void Lanes::settle() noexcept {
  try {
    synchronise();
  } catch (...) {
    // The error that brought us here is the one to report.
    return;
  }
}

}  // namespace ggml::sched
