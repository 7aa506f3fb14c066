#include "http/connection_threads.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "ggml/log.h"

namespace server {

ConnectionThreads::ConnectionThreads(std::size_t kept, std::size_t most, std::chrono::milliseconds idle)
    : kept_(std::max<std::size_t>(kept, 1)), most_(std::max(most, kept_)), idle_(idle) {}

bool ConnectionThreads::enqueue(std::function<void()> connection) {
  Threads ended;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    waiting_.push_back(std::move(connection));
    if (waiting_.size() > n_free_ && threads_.size() < most_ && !start_thread() && threads_.empty()) {
      waiting_.pop_back();
      return false;
    }
    ended.swap(ended_);
  }
  wake_.notify_one();
  for (std::thread& thread : ended) thread.join();
  return true;
}

bool ConnectionThreads::start_thread() {
  const auto self = threads_.emplace(threads_.end());
  try {
    *self = std::thread([this, self] { work(self); });
  } catch (const std::system_error& error) {
    threads_.erase(self);
    ggml::logf(ggml::LogLevel::warn, "no thread for another connection, it waits until one of %zu is free: %s",
               threads_.size(), error.what());
    return false;
  }
  ++n_free_;
  return true;
}

void ConnectionThreads::work(Threads::iterator self) {
  std::unique_lock lock(mutex_);
  while (true) {
    const bool some = wake_.wait_for(lock, idle_, [this] { return !waiting_.empty() || stopping_; });
    if (waiting_.empty() && (stopping_ || (!some && may_end()))) break;
    if (waiting_.empty()) continue;
    --n_free_;
    {
      const std::function<void()> connection = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      connection();
    }
    lock.lock();
    ++n_free_;
  }
  --n_free_;
  // shutdown() joins those that it found in threads_ itself.
  if (!stopping_) ended_.splice(ended_.end(), threads_, self);
}

void ConnectionThreads::shutdown() {
  Threads all;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    all.splice(all.end(), threads_);
    all.splice(all.end(), ended_);
  }
  wake_.notify_all();
  for (std::thread& thread : all) thread.join();
}

bool ConnectionThreads::crowded() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() > n_free_;
}

}  // namespace server
