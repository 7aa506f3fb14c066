#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "ggml/simulated.h"
#include "ggml/trace.h"

namespace common {

/// The file of --trace: what ran when, for Chrome's and Perfetto's trace viewers. It is written as the work goes on, a
/// few times a second and at the end, and is a whole JSON document in between. Where Ctrl-C or SIGTERM would end the
/// process at once, the rest is written first.
class TraceFile {
 public:
  /// Creates the file. Throws Error(invalid_argument) naming it.
  explicit TraceFile(const std::string& path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// The file of that name that is open in this process, or a new one.
  [[nodiscard]] static std::shared_ptr<TraceFile> open(const std::string& path);

  [[nodiscard]] ggml::Trace& trace() { return *trace_; }
  /// The clock of simulated devices, whose work goes to this file.
  [[nodiscard]] std::shared_ptr<ggml::SimulatedTime> virtual_time();
  /// Writes what there is.
  void flush();

 private:
  void main();
  void handle_signals();
  void restore_signals();
  void write_behind(const std::string& text);

  const std::string path_;
  const std::shared_ptr<ggml::Trace> trace_;
  std::shared_ptr<ggml::SimulatedTime> time_;
  int file_ = -1;
  int pipe_[2] = {-1, -1};  // wakes the thread: a signal's number, or 0 for the end

  std::mutex mutex_;  // of what follows
  ggml::ChromeTraceWriter writer_;
  long long end_ = 0;  // of the events in the file
  bool failed_ = false;
  std::thread thread_;
};

}  // namespace common
