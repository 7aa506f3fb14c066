#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ggml/device.h"
#include "ggml/trace.h"

namespace ggml::sched {

/// Finds out when the work of a device that works on its own ran: behind each piece it records an event, for which a
/// thread of its own waits. A piece begins when it was given out, or when the piece before it ended.
class Follower {
 public:
  /// Both are borrowed.
  Follower(Executor& executor, Trace& trace);
  /// Waits for what was given out.
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  /// What was given to the executor last, at that time of the trace's clock.
  void follow(std::string lane, std::string name, double given);

 private:
  struct Piece {
    std::unique_ptr<Event> event;
    TraceSpan span;
  };
  void main();

  Executor& executor_;
  Trace& trace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::vector<std::unique_ptr<Event>> idle_;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace ggml::sched
