#include "engine/mailbox.h"

namespace server {

void Mailbox::push(int answer, Event event) {
  if (cancelled()) return;
  {
    const std::lock_guard lock(mutex_);
    letters_.push_back({answer, std::move(event)});
    n_unread_.store(letters_.size(), std::memory_order_relaxed);
  }
  arrived_.notify_one();
}

std::optional<Mailbox::Letter> Mailbox::pop(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_for(lock, timeout, [this] { return !letters_.empty(); })) return std::nullopt;
  Letter letter = std::move(letters_.front());
  letters_.pop_front();
  n_unread_.store(letters_.size(), std::memory_order_relaxed);
  return letter;
}

}  // namespace server
