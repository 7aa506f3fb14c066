#include "ggml/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace ggml {
namespace {

void print_to_stderr(LogLevel, std::string_view line, void*) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

std::atomic<LogSink> g_sink{print_to_stderr};
std::atomic<void*> g_user{nullptr};
std::atomic<LogLevel> g_level{LogLevel::info};

std::string format(const char* text, va_list args) {
  va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, text, args);
  std::string line(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
  if (length > 0) std::vsnprintf(line.data(), line.size() + 1, text, again);
  va_end(again);
  return line;
}

}  // namespace

void set_log_sink(LogSink sink, void* user) noexcept {
  g_user.store(user);
  g_sink.store(sink != nullptr ? sink : print_to_stderr);
}

void set_log_level(LogLevel level) noexcept {
  g_level.store(level);
}

bool log_enabled(LogLevel level) noexcept {
  return level <= g_level.load(std::memory_order_relaxed);
}

std::string strf(const char* text, ...) {
  va_list args;
  va_start(args, text);
  std::string line = format(text, args);
  va_end(args);
  return line;
}

void logf(LogLevel level, const char* text, ...) {
  if (!log_enabled(level)) return;
  va_list args;
  va_start(args, text);
  const std::string line = format(text, args);
  va_end(args);
  g_sink.load()(level, line, g_user.load());
}

}  // namespace ggml
