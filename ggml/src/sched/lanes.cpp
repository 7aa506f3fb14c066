#include "sched/lanes.h"

#include <algorithm>
#include <exception>
#include <utility>

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
    if (bytes > 0) executor(c.device).copy(c.dst, c.src, bytes);
    LinkUse& link = stats.links[static_cast<std::size_t>(c.device)];
    (c.to_device ? link.bytes_in : link.bytes_out) += bytes;
    ++(c.to_device ? link.copies_in : link.copies_out);
    if (i + 1 == copies.size() || copies[i + 1].device != c.device) touched(c.device);
  }
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
