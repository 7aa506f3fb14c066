#pragma once

#include <chrono>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace ggml {

/// A piece of work on one lane (a device, or its link to host memory), in seconds from an origin that all lanes of a
/// trace share.
struct TraceSpan {
  std::string lane;  // "CPU", "CUDA0", "CUDA0 link"
  std::string name;
  double begin = 0, end = 0;
};

/// Takes down what was done when, until somebody takes it away. Thread-safe.
class Trace {
 public:
  void add(TraceSpan span);
  /// Everything since the last call, in the order in which it ended.
  [[nodiscard]] std::vector<TraceSpan> take();
  /// Seconds since the trace was made, by the machine's clock. Traces of simulated devices use a virtual one instead.
  [[nodiscard]] double now() const;

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::vector<TraceSpan> spans_;
};

/// Writes spans as Chrome and Perfetto show them: JSON, a row per lane, times in microseconds. What head() and the
/// calls of events() gave so far is, with tail() behind it, a whole document at any time.
class ChromeTraceWriter {
 public:
  [[nodiscard]] static std::string head();
  [[nodiscard]] static std::string tail();
  [[nodiscard]] std::string events(std::span<const TraceSpan> spans);

 private:
  [[nodiscard]] std::size_t row_of(const std::string& lane, std::string& text);

  std::vector<std::string> lanes_;
  bool empty_ = true;
};

/// A trace as one document.
[[nodiscard]] std::string chrome_trace(std::span<const TraceSpan> spans);

}  // namespace ggml
