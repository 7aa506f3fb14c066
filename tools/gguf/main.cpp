// llama-gguf: shows what a GGUF file holds, and writes models of true shape with random weights.
#include <atomic>
#include <csignal>
#include <string_view>

#include "common/log/standard_output.h"
#include "common/setup/run_tool.h"
#include "ggml/gguf.h"
#include "report.h"
#include "synth/synth.h"

namespace {

std::atomic<bool> g_stop{false};  // a signal handler may touch nothing else
static_assert(std::atomic<bool>::is_always_lock_free);

int inspect(const common::Settings& settings) {
  const common::GgufSettings& wanted = settings.gguf;
  const ggml::gguf::File file = wanted.files.size() == 1 ? ggml::gguf::File::open(wanted.files.front())
                                                         : ggml::gguf::File::open_parts(wanted.files);
  if (wanted.json) {
    common::write_standard_output(gguf_tool::json_report(file) + "\n");
  } else {
    gguf_tool::print_report(file, wanted.full ? gguf_tool::Detail::full : gguf_tool::Detail::abbreviated, stdout);
  }
  return 0;
}

int synthesise(const common::Settings& settings) {
  std::signal(SIGINT, [](int) { g_stop = true; });
  std::signal(SIGTERM, [](int) { g_stop = true; });
  if (settings.synth.list) {
    gguf_tool::print_presets(settings.synth.mix);
  } else {
    gguf_tool::synthesise(settings.synth, g_stop);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "synth")
    return common::run_tool(common::Tool::gguf_synth, argc - 1, argv + 1, synthesise);
  return common::run_tool(common::Tool::gguf, argc, argv, inspect);
}
