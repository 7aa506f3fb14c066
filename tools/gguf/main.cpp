// llama-gguf: shows what a GGUF file holds, and writes models of true shape with random weights.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "options.h"
#include "report.h"
#include "synth/synth.h"

namespace {

std::atomic<bool> g_stop{false};  // a signal handler may touch nothing else
static_assert(std::atomic<bool>::is_always_lock_free);

void inspect(const gguf_tool::Options& options) {
  const ggml::gguf::File file = options.files.size() == 1 ? ggml::gguf::File::open(options.files.front())
                                                          : ggml::gguf::File::open_parts(options.files);
  if (options.json) {
    std::puts(gguf_tool::json_report(file).c_str());
  } else {
    gguf_tool::print_report(file, options.detail, stdout);
  }
}

void run(const gguf_tool::Options& options) {
  switch (options.command) {
    case gguf_tool::Command::help:
      std::fputs(options.help.c_str(), stdout);
      return;
    case gguf_tool::Command::inspect:
      return inspect(options);
    case gguf_tool::Command::list_presets:
      return gguf_tool::print_presets(options.synth.mix);
    case gguf_tool::Command::synthesise:
      return gguf_tool::synthesise(options.synth, g_stop);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, [](int) { g_stop = true; });
  std::signal(SIGTERM, [](int) { g_stop = true; });
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit shall be an error with a message, as a full disk is
  try {
    run(gguf_tool::parse_options(argc, argv));
  } catch (const ggml::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    if (!error.hint().empty()) std::fprintf(stderr, "hint: %s\n", error.hint().c_str());
    return 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: out of memory\n");
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
