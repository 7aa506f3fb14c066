#include "console.h"

#include <unistd.h>
#include <csignal>

#include <atomic>
#include <iostream>

#include "common/args/environment.h"
#include "common/log/standard_output.h"
#include "ggml/error.h"

namespace cli {
namespace {

// A signal handler can reach process-wide state only.
std::atomic<int> g_interrupts{0};

void on_interrupt(int) {
  if (g_interrupts.fetch_add(1) > 0) {
    constexpr int kInterrupted = 130;
    _exit(kInterrupted);
  }
}

const char* color_of(Console::Speaker speaker) {
  switch (speaker) {
    case Console::Speaker::prompt:
      return "\033[33m";
    case Console::Speaker::user:
      return "\033[1m\033[32m";
    case Console::Speaker::thought:
      return "\033[0m\033[2m";
    case Console::Speaker::model:
    case Console::Speaker::none:
      break;
  }
  return "\033[0m";
}

}  // namespace

Console::Console(bool colors) : colors_(colors) {}

Console::~Console() {
  try {
    speak(Speaker::none);
  } catch (const ggml::Error&) {  // whoever wrote before was told already
  }
}

bool Console::is_terminal() {
  return isatty(STDOUT_FILENO) == 1 && !common::environment("NO_COLOR");
}

void Console::speak(Speaker speaker) {
  if (colors_ && speaker != speaker_) write(color_of(speaker));
  speaker_ = speaker;
}

void Console::write(std::string_view text) {
  common::write_standard_output(text);
}

std::optional<std::string> Console::read_line(bool multiline) {
  std::string input;
  std::string line;
  while (std::getline(std::cin, line)) {
    const char last = line.empty() ? '\0' : line.back();
    const bool marked = multiline ? last == '/' : last == '\\';
    if (marked) line.pop_back();
    input += line;
    if (marked == multiline) return input;
    input += '\n';
  }
  std::cin.clear();  // a Ctrl-C during the read ends it as if the input had ended
  if (input.empty()) return std::nullopt;
  return input;
}

bool Console::interrupted() {
  return g_interrupts.load(std::memory_order_relaxed) > 0;
}

void Console::clear_interrupt() {
  g_interrupts.store(0);
}

void Console::catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);  // without SA_RESTART: a read of stdin ends
}

}  // namespace cli
