#include "common/setup/trace_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "common/setup/output_file.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace common {
namespace {

using ggml::Error;
using ggml::ErrorCode;

constexpr int kIntervalMs = 200;
constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

// A signal handler can reach process-wide state only.
std::atomic<int> g_signal_pipe{-1};

void on_signal(int number) {
  const int before = errno;
  const auto byte = static_cast<unsigned char>(number);
  (void)!write(g_signal_pipe.load(), &byte, 1);
  errno = before;
}

[[noreturn]] void refuse(const std::string& path, int error) {
  throw Error(ErrorCode::invalid_argument, "error: --trace " + path + ": cannot be written: " + std::strerror(error),
              "Give a file in a folder that is there and may be written to.");
}

/// Whether all of it was written.
bool write_all(int file, const std::string& text, long long offset) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n =
        pwrite(file, text.data() + done, text.size() - done, static_cast<off_t>(offset + static_cast<long long>(done)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

TraceFile::TraceFile(const std::string& path) : path_(path), trace_(std::make_shared<ggml::Trace>()) {
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) refuse(path, errno);
  const std::string head = ggml::ChromeTraceWriter::head();
  if (!write_all(file_, head + ggml::ChromeTraceWriter::tail(), 0) || pipe2(pipe_, O_CLOEXEC) != 0) {
    const int error = errno;
    close(file_);
    refuse(path, error);
  }
  end_ = static_cast<long long>(head.size());
  g_signal_pipe.store(pipe_[1]);
  handle_signals();
  thread_ = std::thread([this] { main(); });
}

TraceFile::~TraceFile() {
  restore_signals();
  const unsigned char end = 0;
  (void)!write(pipe_[1], &end, 1);
  thread_.join();
  flush();
  for (const int descriptor : {file_, pipe_[0], pipe_[1]}) close(descriptor);
}

std::shared_ptr<TraceFile> TraceFile::open(const std::string& path) {
  static std::mutex mutex;
  static std::weak_ptr<TraceFile> last;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<TraceFile> file = last.lock();
  if (file != nullptr && file->path_ == path) return file;
  last = file = std::make_shared<TraceFile>(path);
  return file;
}

std::shared_ptr<ggml::SimulatedTime> TraceFile::virtual_time() {
  if (time_ == nullptr) time_ = std::make_shared<ggml::SimulatedTime>(trace_);
  return time_;
}

/// Programs with handlers of their own end in an orderly way; for the others we write first.
void TraceFile::handle_signals() {
  for (const int number : kSignals) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = on_signal;
    ours.sa_flags = SA_RESTART;
    sigemptyset(&ours.sa_mask);
    sigaction(number, &ours, nullptr);
  }
}

void TraceFile::restore_signals() {
  for (const int number : kSignals) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == on_signal) (void)signal(number, SIG_DFL);
  }
}

void TraceFile::main() {
  while (true) {
    pollfd input{pipe_[0], POLLIN, 0};
    const int n = poll(&input, 1, kIntervalMs);
    unsigned char number = 0;
    const bool woken = n > 0 && read(pipe_[0], &number, 1) == 1;
    if (woken && number == 0) return;
    flush();
    if (!woken) continue;
    restore_signals();
    kill(getpid(), number);
  }
}

void TraceFile::flush() {
  const std::scoped_lock lock(mutex_);
  const std::vector<ggml::TraceSpan> spans = trace_->take();
  if (!spans.empty() && !failed_) write_behind(writer_.events(spans));
}

/// Puts events where the document's end was, and the end behind them.
void TraceFile::write_behind(const std::string& text) {
  const std::string tail = ggml::ChromeTraceWriter::tail();
  if (write_all(file_, text + tail, end_)) {
    end_ += static_cast<long long>(text.size());
    return;
  }
  const int error = errno;
  failed_ = true;
  // There was room for the end before.
  const bool whole = ftruncate(file_, static_cast<off_t>(end_)) == 0 && write_all(file_, tail, end_);
  ggml::logf(ggml::LogLevel::warn, "--trace %s: %s; the trace ends here%s", path_.c_str(), std::strerror(error),
             whole ? "" : " and is damaged");
}

}  // namespace common
