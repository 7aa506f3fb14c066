#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

namespace server {

/// Counts the requests that are being read, worked on or answered. The HTTP library cuts answers as soon as it is told
/// to stop, so whoever stops it waits here first. Thread-safe; must outlive its tickets.
class OpenRequests {
 public:
  using Clock = std::chrono::steady_clock;

  /// A request is open for as long as somebody holds the ticket.
  [[nodiscard]] std::shared_ptr<void> enter() {
    const std::lock_guard lock(mutex_);
    ++n_open_;
    return {static_cast<void*>(this), [this](void*) {
              const std::lock_guard inner(mutex_);
              --n_open_;
              changed_.notify_all();
            }};
  }

  /// Returns when no request is open, or once `longest` (or the shorter time of a later hurry()) has passed.
  void wait_until_none(std::chrono::milliseconds longest) {
    std::unique_lock lock(mutex_);
    shorten(longest);
    while (n_open_ > 0 && changed_.wait_until(lock, *deadline_) == std::cv_status::no_timeout) {
    }
  }

  [[nodiscard]] int count() const {
    const std::lock_guard lock(mutex_);
    return n_open_;
  }

  /// Bounds a wait that is going on or comes later.
  void hurry(std::chrono::milliseconds longest) {
    const std::lock_guard lock(mutex_);
    shorten(longest);
    changed_.notify_all();
  }

 private:
  void shorten(std::chrono::milliseconds longest) {
    const Clock::time_point wanted = Clock::now() + longest;
    if (!deadline_.has_value() || wanted < *deadline_) deadline_ = wanted;
  }

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  int n_open_ = 0;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace server
