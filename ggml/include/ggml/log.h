#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ggml {

enum class LogLevel : std::uint8_t { error, warn, info, debug, trace };

/// Receives every log line of ggml and src, without a newline. May be called from any thread.
using LogSink = void (*)(LogLevel level, std::string_view line, void* user);

/// Installs the process's sink (the one piece of process-wide state); null restores the default, plain stderr from info
/// up.
void set_log_sink(LogSink sink, void* user) noexcept;
/// Lines above this level are dropped before they are formatted.
void set_log_level(LogLevel level) noexcept;
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

/// printf-style formatting into a string: ggml's own small formatter, since ggml depends on nothing.
[[gnu::format(printf, 1, 2)]] std::string strf(const char* format, ...);
/// Formats and sends one line to the sink, if the level is enabled.
[[gnu::format(printf, 2, 3)]] void logf(LogLevel level, const char* format, ...);

}  // namespace ggml
