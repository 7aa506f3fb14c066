#include "stop_signals.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/log/log.h"
#include "ggml/log.h"

namespace server {

StopSignals::StopSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a client that leaves is an error code, not our end
  thread_ = std::thread([this] { watch(); });
}

StopSignals::~StopSignals() {
  over_ = true;
  // The thread waits for this signal, which is blocked. NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread)
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void StopSignals::set_clean_up(std::function<void()> clean_up) {
  const std::lock_guard lock(mutex_);
  clean_up_ = std::move(clean_up);
}

void StopSignals::wait(Actions actions) {
  std::unique_lock lock(mutex_);
  actions_ = std::move(actions);
  serving_ = true;
  asked_.wait(lock, [this] { return stop_; });
}

void StopSignals::stopped() {
  const std::lock_guard lock(mutex_);
  actions_ = {};
}

bool StopSignals::take_signal(std::chrono::milliseconds longest) const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + longest;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now()).count();
    const timespec time{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    if (longest.count() >= 0 && left <= 0) return false;
    if (sigtimedwait(&set_, nullptr, longest.count() < 0 ? nullptr : &time) > 0) return true;
    if (errno != EINTR && errno != EAGAIN) return false;
  }
}

void StopSignals::watch() {
  (void)take_signal(std::chrono::milliseconds(-1));
  if (over_) return;
  {
    const std::lock_guard lock(mutex_);
    if (!serving_) end_by_force(0, "stopped while the model was being loaded");
    stop_ = true;
    asked_.notify_all();
  }
  ggml::logf(ggml::LogLevel::info, "stopping: running answers may end within %lld s; a second signal stops at once",
             static_cast<long long>(kGrace.count() / 1000));
  (void)take_signal(kGrace);
  if (over_) return;
  {
    const std::lock_guard lock(mutex_);
    if (actions_.hurry) actions_.hurry();
  }
  (void)take_signal(kHurry + kRest);
  if (over_) return;
  const std::lock_guard lock(mutex_);
  end_by_force(1, "stopped by force: " + (actions_.unfinished ? actions_.unfinished() : "memory is still given back"));
}

void StopSignals::end_by_force(int status, const std::string& line) {
  ggml::logf(status == 0 ? ggml::LogLevel::info : ggml::LogLevel::error, "%s", line.c_str());
  if (clean_up_) clean_up_();
  common::flush_log();
  _exit(status);
}

}  // namespace server
