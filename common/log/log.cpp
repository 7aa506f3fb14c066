#include "common/log/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "common/args/environment.h"
#include "ggml/error.h"

namespace common {
namespace {

using ggml::LogLevel;

struct LevelRow {
  char letter;
  const char* name;
  const char* color;
  spdlog::level::level_enum spdlog_level;
};

/// In the order of LogLevel.
constexpr std::array<LevelRow, 5> kLevels = {{
    {'E', "error", "\033[31m", spdlog::level::err},
    {'W', "warning", "\033[33m", spdlog::level::warn},
    {'I', "info", "", spdlog::level::info},
    {'D', "debug", "\033[36m", spdlog::level::debug},
    {'T', "trace", "\033[2m", spdlog::level::trace},
}};
constexpr const char* kReset = "\033[0m";

/// Everything the sink needs; one per process, replaced by init_log().
struct LogState {
  bool colors = false;
  bool prefix = false;
  bool timestamps = false;
  bool json = false;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::shared_ptr<spdlog::logger> terminal;  // shared_ptr: spdlog's own ownership
  std::shared_ptr<spdlog::logger> file;
};

LogState& state() {
  static LogState instance;
  return instance;
}

std::string json_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string format_line(const LogState& log, LogLevel level, std::string_view line, bool colors) {
  const LevelRow& row = kLevels[static_cast<std::size_t>(level)];
  const auto now = std::chrono::system_clock::now();
  if (log.json) {
    const double seconds = std::chrono::duration<double>(now.time_since_epoch()).count();
    return fmt::format(R"({{"timestamp":{:.3f},"level":"{}","msg":"{}"}})", seconds, row.name, json_escaped(line));
  }
  std::string out;
  if (log.timestamps) {
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - log.start;
    const auto whole = static_cast<std::int64_t>(since.count() * 1e3);
    out += fmt::format("{}.{:02}.{:03} ", whole / 60000, whole / 1000 % 60, whole % 1000);
  }
  if (log.prefix) {
    out += fmt::format("{} ", row.letter);
  } else if (level <= LogLevel::warn) {
    out += fmt::format("{}: ", row.name);
  }
  out += line;
  return colors && row.color[0] != '\0' ? row.color + out + kReset : out;
}

void write_line(LogLevel level, std::string_view line, void* user) {
  const LogState& log = *static_cast<const LogState*>(user);
  const spdlog::level::level_enum spd = kLevels[static_cast<std::size_t>(level)].spdlog_level;
  if (log.terminal) log.terminal->log(spd, spdlog::string_view_t(format_line(log, level, line, log.colors)));
  if (log.file) log.file->log(spd, spdlog::string_view_t(format_line(log, level, line, false)));
}

void drop_line(LogLevel, std::string_view, void*) {}

/// A logger that writes lines as they are: the form is ours, so that the terminal and the file can differ.
std::shared_ptr<spdlog::logger> plain_logger(const std::string& name, spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>(name, std::move(sink));
  logger->set_level(spdlog::level::trace);
  logger->set_pattern("%v");
  logger->flush_on(spdlog::level::trace);  // a crash must not eat the line that explains it
  return logger;
}

}  // namespace

bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

bool log_uses_colors() {
  return state().colors;
}

void init_log(const LogSettings& settings) {
  LogState& log = state();
  log = LogState{};
  if (settings.disabled || settings.verbosity == 0) {
    ggml::set_log_level(LogLevel::error);
    ggml::set_log_sink(drop_line, nullptr);
    return;
  }
  const bool wanted = settings.colors == Tristate::on;
  const bool automatic = settings.colors == Tristate::automatic;
  log.colors = wanted || (automatic && stderr_is_terminal() && !environment("NO_COLOR"));
  log.prefix = settings.prefix.value_or(false);
  log.timestamps = settings.timestamps.value_or(false);
  log.json = settings.json;
  log.terminal = plain_logger("stderr", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (!settings.file.empty()) {
    const std::string wrong = "error: --log-file " + settings.file + ": cannot open it for writing: ";
    constexpr const char* kHint = "Name a file in a folder that exists and that you may write to.";
    // spdlog would create the folder, wherever a slip of the pen puts it.
    const std::filesystem::path folder = std::filesystem::path(settings.file).parent_path();
    std::error_code ignored;
    if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
      throw ggml::Error(ggml::ErrorCode::io, wrong + "there is no folder " + folder.string(), kHint);
    try {
      log.file = plain_logger("file", std::make_shared<spdlog::sinks::basic_file_sink_mt>(settings.file));
    } catch (const spdlog::spdlog_ex& error) {
      throw ggml::Error(ggml::ErrorCode::io, wrong + error.what(), kHint);
    }
  }
  constexpr int kMaxVerbosity = 5;
  const int level = std::min(settings.verbosity, kMaxVerbosity) - 1;
  ggml::set_log_level(static_cast<LogLevel>(level));
  ggml::set_log_sink(write_line, &log);
}

void flush_log() {
  const LogState& log = state();
  if (log.terminal) log.terminal->flush();
  if (log.file) log.file->flush();
}

}  // namespace common
