#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace common {

/// Progress of one long operation on stderr, never on stdout: a bar with the time left on a terminal, otherwise one
/// line per quarter. Prints nothing for operations shorter than half a second, nor when the log is off.
///
/// Thread-compatible: one thread at a time. The destructor ends the line.
class Progress {
 public:
  enum class Unit : std::uint8_t { count, bytes };

  /// `total` <= 0: unknown, only the amount is shown.
  Progress(std::string label, std::int64_t total, Unit unit = Unit::count);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total` are finished. Cheap: prints at most ten times a second.
  void update(std::int64_t done);
  /// Everything is done; also called by the destructor if update(total) was reached.
  void finish();

  /// The text of the bar without control characters, for tests: "loading  42 % 1.2/2.9 GiB  eta 0:03".
  [[nodiscard]] static std::string render(const std::string& label, std::int64_t done, std::int64_t total, Unit unit,
                                          std::chrono::milliseconds elapsed);

 private:
  using Clock = std::chrono::steady_clock;
  void print(bool last);

  const std::string label_;
  const std::int64_t total_;
  const Unit unit_;
  const bool terminal_;
  const Clock::time_point start_;
  Clock::time_point last_print_;
  std::int64_t done_ = 0;
  int quarters_printed_ = 0;
  bool started_ = false;
  bool finished_ = false;
};

}  // namespace common
