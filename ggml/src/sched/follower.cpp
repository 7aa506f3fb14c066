#include "sched/follower.h"

#include <algorithm>
#include <utility>

#include "ggml/error.h"

namespace ggml::sched {
namespace {

/// Waits; what failed there is told to whoever waits for the work's results.
void wait_until_over(Event& event) {
  try {
    event.wait();
  } catch (const Error&) {
    return;
  }
}

}  // namespace

Follower::Follower(Executor& executor, Trace& trace)
    : executor_(executor), trace_(trace), thread_([this] { main(); }) {}

Follower::~Follower() {
  {
    const std::scoped_lock lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Follower::follow(std::string lane, std::string name, double given) {
  std::unique_ptr<Event> event;
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      event = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (event == nullptr) event = executor_.make_event();
  executor_.record(*event);
  {
    const std::scoped_lock lock(mutex_);
    pieces_.push_back({std::move(event), {std::move(lane), std::move(name), given, given}});
  }
  changed_.notify_all();
}

void Follower::main() {
  double before = 0;  // end of the last piece
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return quit_ || !pieces_.empty(); });
    if (pieces_.empty()) return;
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    lock.unlock();
    wait_until_over(*piece.event);
    piece.span.end = trace_.now();
    piece.span.begin = std::max(piece.span.begin, before);
    before = piece.span.end;
    trace_.add(std::move(piece.span));
    lock.lock();
    idle_.push_back(std::move(piece.event));
  }
}

}  // namespace ggml::sched
