// llama-bench: speed of prompt and generation over a grid of settings.
#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <thread>

#include "ggml/error.h"
#include "ggml/log.h"
#include "options.h"
#include "printer.h"
#include "runner.h"

namespace {

int run(const bench::Grid& grid) {
  if (!grid.verbose) ggml::set_log_level(ggml::LogLevel::error);
  const bench::Grid defaults = bench::default_grid();
  const std::unique_ptr<bench::Printer> printers[] = {bench::make_printer(grid.output, stdout, grid, defaults),
                                                      bench::make_printer(grid.output_stderr, stderr, grid, defaults)};
  for (const auto& printer : printers) {
    if (printer != nullptr) printer->begin();
  }
  bench::Runner runner(grid);
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
  try {
    bench::Grid grid;
    if (bench::parse_options(argc, argv, grid) == bench::Action::exit_success) return 0;
    return run(grid);
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
}
