#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/request.h"

namespace server {

/// The way of all answers to one HTTP request from the engine's loop to the thread that waits for them. Thread-safe;
/// shared by the two, since either may outlive the other (a client leaves, a request ends).
class Mailbox {
 public:
  struct Letter {
    int answer = 0;  // which of the request's answers
    Event event;
  };

  /// Engine: appends an event. Events after a cancel() are dropped.
  void push(int answer, Event event);
  /// HTTP: the next event, or nothing when `timeout` passed first.
  std::optional<Letter> pop(std::chrono::milliseconds timeout);
  /// HTTP: the client has left; the engine frees the slots at its next step.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Letter> letters_;
  std::atomic<bool> cancelled_{false};
};

/// One answer's end of the mailbox, held by its slot.
struct Reply {
  std::shared_ptr<Mailbox> mailbox;
  int answer = 0;

  void push(Event event) const { mailbox->push(answer, std::move(event)); }
  [[nodiscard]] bool cancelled() const noexcept { return mailbox->cancelled(); }
};

}  // namespace server
