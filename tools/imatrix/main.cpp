// llama-imatrix: how much each column of a model's weights counts for a text.
#include <atomic>
#include <csignal>

#include "common/setup/run_tool.h"
#include "run.h"

namespace {

std::atomic<bool> g_stop{false};  // a signal handler may touch nothing else
static_assert(std::atomic<bool>::is_always_lock_free);

int run(const common::Settings& settings) {
  std::signal(SIGINT, [](int) { g_stop = true; });
  std::signal(SIGTERM, [](int) { g_stop = true; });
  return imatrix::run(settings, g_stop) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::imatrix, argc, argv, run);
}
