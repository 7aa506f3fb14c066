#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
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
  /// So many letters may wait to be read before the engine stops writing tokens: a client that does not read its stream
  /// would otherwise fill the memory, without an end where the context is shifted.
  static constexpr std::size_t kMostUnread = 256;

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
  /// Engine: the reader has fallen behind.
  [[nodiscard]] bool full() const noexcept { return n_unread_.load(std::memory_order_relaxed) >= kMostUnread; }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Letter> letters_;
  std::atomic<std::size_t> n_unread_{0};  // as many as letters_; written under mutex_
  std::atomic<bool> cancelled_{false};
};

/// One answer's end of the mailbox, held by its slot.
struct Reply {
  std::shared_ptr<Mailbox> mailbox;
  int answer = 0;

  void push(Event event) const { mailbox->push(answer, std::move(event)); }
  [[nodiscard]] bool cancelled() const noexcept { return mailbox->cancelled(); }
  [[nodiscard]] bool full() const noexcept { return mailbox->full(); }
};

}  // namespace server
