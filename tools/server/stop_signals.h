#pragma once

#include <csignal>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace server {

/// SIGINT and SIGTERM, from the start of the program to its end. While the model is being loaded one ends the process
/// at once: there is nothing to lose. Later the first asks for an orderly stop; a second one, or the end of the grace
/// time, hurries it; and what is not done a few seconds after that is given up, and the process ended by force.
class StopSignals {
 public:
  static constexpr std::chrono::milliseconds kGrace{30000};  // how long running answers may still take
  static constexpr std::chrono::milliseconds kHurry{2000};   // for the last words of answers that were cut short
  static constexpr std::chrono::milliseconds kRest{3000};    // for threads to end and memory to be given back

  struct Actions {
    std::function<void()> hurry;              // cut short what is running
    std::function<std::string()> unfinished;  // what is still running, for the log
  };

  /// Blocks the signals in this thread and those that it starts from now on. Call before threads start.
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// What an end by force must not leave behind; called on a thread of ours at any time from now on.
  void set_clean_up(std::function<void()> clean_up);
  /// Returns when the process shall stop. `actions` may be called until stopped(), on a thread of ours.
  void wait(Actions actions);
  /// What `actions` speak of has ended, or ends.
  void stopped();

 private:
  void watch();
  /// True: a signal came in time. Negative: without end.
  [[nodiscard]] bool take_signal(std::chrono::milliseconds longest) const;
  [[noreturn]] void end_by_force(int status, const std::string& line);

  sigset_t set_{};
  std::atomic<bool> over_{false};
  std::mutex mutex_;  // guards what follows
  std::condition_variable asked_;
  bool serving_ = false;
  bool stop_ = false;
  Actions actions_;
  std::function<void()> clean_up_;
  std::thread thread_;
};

}  // namespace server
