// llama-bench: speed of prompt and generation over a grid of settings.
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "common/setup/run_tool.h"
#include "ggml/log.h"
#include "grid.h"
#include "printer.h"
#include "runner.h"

namespace {

int run(const common::Settings& settings) {
  constexpr int kVerbose = 4;  // the log of loading would stand between the results
  if (settings.log.verbosity < kVerbose) ggml::set_log_level(ggml::LogLevel::error);
  const bench::Grid grid = bench::with_defaults(settings.grid);
  const bench::Grid defaults = bench::default_grid();
  const std::unique_ptr<bench::Printer> printers[] = {bench::make_printer(grid.output, stdout, grid, defaults),
                                                      bench::make_printer(grid.output_stderr, stderr, grid, defaults)};
  for (const auto& printer : printers) {
    if (printer != nullptr) printer->begin();
  }
  bench::Runner runner(settings);
  const std::vector<bench::Test> tests = bench::expand(grid);
  for (std::size_t i = 0; i < tests.size(); ++i) {
    if (grid.progress)
      std::fprintf(stderr, "llama-bench: test %zu/%zu: %s\n", i + 1, tests.size(), tests[i].label().c_str());
    if (i > 0 && grid.delay_s > 0) std::this_thread::sleep_for(std::chrono::seconds(grid.delay_s));
    const bench::Result result = runner.run(tests[i]);
    for (const auto& printer : printers) {
      if (printer != nullptr) printer->print(result);
    }
  }
  for (const auto& printer : printers) {
    if (printer != nullptr) printer->end();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::bench, argc, argv, run);
}
