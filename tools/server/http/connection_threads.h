#pragma once

#include <httplib.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace server {

/// Threads for connections, one each: a connection occupies its thread for as long as it is kept alive, streams
/// included, so that one that waits for another's thread may wait for minutes. Whenever more connections are there than
/// free threads a thread is started; only beyond `most` connections wait, first come, first served. (The library's own
/// pool starts none while it counts an idle thread that is already promised to an earlier connection of a burst.)
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  /// `kept` threads stay; others, up to `most` in all, end after `idle` without work.
  ConnectionThreads(std::size_t kept, std::size_t most, std::chrono::milliseconds idle = std::chrono::seconds(10));
  ConnectionThreads(const ConnectionThreads&) = delete;
  ConnectionThreads& operator=(const ConnectionThreads&) = delete;
  ~ConnectionThreads() override { shutdown(); }

  /// False once shut down, or when not one thread could be started.
  bool enqueue(std::function<void()> connection) override;
  /// Serves what waits, then ends all threads. Idempotent.
  void shutdown() override;
  /// Connections wait because all threads are taken.
  [[nodiscard]] bool crowded() const;

 private:
  using Threads = std::list<std::thread>;

  [[nodiscard]] bool start_thread();  // under mutex_
  void work(Threads::iterator self);
  [[nodiscard]] bool may_end() const { return threads_.size() > kept_; }

  const std::size_t kept_;
  const std::size_t most_;
  const std::chrono::milliseconds idle_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  std::size_t n_free_ = 0;  // threads that will look at `waiting_` next, just started ones included
  Threads threads_;
  Threads ended_;  // to be joined
  bool stopping_ = false;
};

}  // namespace server
