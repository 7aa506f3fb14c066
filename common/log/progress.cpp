#include "common/log/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "common/log/log.h"

namespace common {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kQuiet{500};     // shorter operations print nothing
constexpr milliseconds kInterval{100};  // between two redraws
constexpr int kQuarters = 4;

struct Scale {
  double divisor;
  const char* name;
};

/// The unit in which `total` has a handy size.
Scale scale_for(std::int64_t total) {
  constexpr double kKibi = 1024.0;
  const auto bytes = static_cast<double>(total);
  if (bytes >= kKibi * kKibi * kKibi) return {kKibi * kKibi * kKibi, "GiB"};
  if (bytes >= kKibi * kKibi) return {kKibi * kKibi, "MiB"};
  return {kKibi, "KiB"};
}

std::string amount(std::int64_t done, std::int64_t total, Progress::Unit unit) {
  if (unit == Progress::Unit::count) return total > 0 ? fmt::format("{}/{}", done, total) : fmt::format("{}", done);
  const Scale scale = scale_for(total > 0 ? total : done);
  const double part = static_cast<double>(done) / scale.divisor;
  if (total <= 0) return fmt::format("{:.1f} {}", part, scale.name);
  return fmt::format("{:.1f}/{:.1f} {}", part, static_cast<double>(total) / scale.divisor, scale.name);
}

std::string clock_text(milliseconds time) {
  const std::int64_t seconds = (time.count() + 500) / 1000;
  return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
}

}  // namespace

std::string Progress::render(const std::string& label, std::int64_t done, std::int64_t total, Unit unit,
                             milliseconds elapsed) {
  std::string out = label + "  ";
  if (total > 0) out += fmt::format("{:3d} %  ", std::clamp<std::int64_t>(done * 100 / total, 0, 100));
  out += amount(done, total, unit);
  if (total > 0 && done > 0 && done < total) {
    const double left =
        static_cast<double>(elapsed.count()) * static_cast<double>(total - done) / static_cast<double>(done);
    out += "  eta " + clock_text(milliseconds(static_cast<std::int64_t>(left)));
  } else if (done >= total) {
    out += "  in " + clock_text(elapsed);
  }
  return out;
}

Progress::Progress(std::string label, std::int64_t total, Unit unit)
    : label_(std::move(label)), total_(total), unit_(unit), terminal_(stderr_is_terminal()), start_(Clock::now()) {}

Progress::~Progress() {
  if (finished_) return;
  if (total_ > 0 && done_ >= total_) {
    finish();
  } else if (started_ && terminal_) {
    std::fputc('\n', stderr);  // interrupted: leave the bar as it stood
  }
}

void Progress::update(std::int64_t done) {
  done_ = done;
  const Clock::time_point now = Clock::now();
  if (!ggml::log_enabled(ggml::LogLevel::info) || now - start_ < kQuiet) return;
  if (terminal_) {
    if (started_ && now - last_print_ < kInterval) return;
    last_print_ = now;
    print(false);
    return;
  }
  const int quarters = total_ > 0 ? static_cast<int>(std::min<std::int64_t>(done * kQuarters / total_, kQuarters)) : 0;
  if (quarters > quarters_printed_ && quarters < kQuarters) {
    quarters_printed_ = quarters;
    print(false);
  }
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (total_ > 0) done_ = total_;
  if (started_ || (ggml::log_enabled(ggml::LogLevel::info) && Clock::now() - start_ >= kQuiet)) print(true);
}

void Progress::print(bool last) {
  constexpr int kBar = 24;
  started_ = true;
  const auto elapsed = std::chrono::duration_cast<milliseconds>(Clock::now() - start_);
  const std::string text = render(label_, done_, total_, unit_, elapsed);
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", text.c_str());
    return;
  }
  std::string bar;
  if (total_ > 0) {
    const int filled = static_cast<int>(std::clamp<std::int64_t>(done_ * kBar / total_, 0, kBar));
    bar = "[" + std::string(static_cast<std::size_t>(filled), '#') +
          std::string(static_cast<std::size_t>(kBar - filled), '.') + "] ";
  }
  // Return, draw, erase to the end of the line: a longer earlier text must not stay behind.
  std::fprintf(stderr, "\r%s%s\033[K%s", bar.c_str(), text.c_str(), last ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace common
