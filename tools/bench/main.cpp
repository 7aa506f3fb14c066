// llama-bench: speed of prompt and generation over a grid of settings.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/setup/planned_run.h"
#include "common/setup/run_tool.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "grid.h"
#include "llama/vocab.h"
#include "printer.h"
#include "runner.h"

namespace {

/// The grid with its defaults; -Cr, which is no axis, is the only entry of the axis that -C is.
bench::Grid grid_of(const common::Settings& settings) {
  bench::Grid grid = settings.grid;
  if (grid.cpus.empty() && !settings.threads.cpus.empty()) grid.cpus = {settings.threads.cpus};
  grid = bench::with_defaults(grid);
  // -tb goes with each -t.
  if (settings.threads.n_threads_batch > 0 && grid.threads_gen_batch.empty()) {
    for (const int n : std::exchange(grid.n_threads, {}))
      grid.threads_gen_batch.emplace_back(n, settings.threads.n_threads_batch);
  }
  return grid;
}

/// The cells of the grid. With --prompt each model has its own number of tokens.
std::vector<bench::Test> tests_of(const common::Settings& settings) {
  const bench::Grid grid = grid_of(settings);
  if (settings.prompt.prompt.empty()) return bench::expand(grid);
  if (!settings.grid.n_prompt.empty())
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "error: --prompt gives the prompt that is measured",
                      "Leave -p out, or --prompt.");
  std::vector<bench::Test> tests;
  for (const std::string& model : grid.models) {
    const ggml::gguf::File file = ggml::gguf::File::open(model);
    const llama::Vocab vocab = llama::Vocab::load(file.metadata(), model);
    bench::Grid one = grid;
    one.models = {model};
    const std::size_t n_tokens = bench::tokens_of(settings.prompt.prompt, vocab).size();
    if (n_tokens == 0)
      throw ggml::Error(ggml::ErrorCode::invalid_argument,
                        "--prompt: the vocabulary of " + model + " has no token for it",
                        "look at its tokens: llama-gguf FILE --json");
    one.n_prompt = {static_cast<int>(n_tokens)};
    for (bench::Test& test : bench::expand(one)) tests.push_back(std::move(test));
  }
  return tests;
}

/// --dry-run: a plan for each placement of the grid.
int print_plans(const common::Settings& settings) {
  int status = 0;
  std::vector<std::string> seen;
  for (const bench::Test& test : tests_of(settings)) {
    std::string cell = ggml::strf("%s ngl=%d ncmoe=%s ot=%s", test.model.c_str(), test.n_gpu_layers,
                                  test.experts_on_cpu().c_str(), test.tensor_rules.c_str());
    if (test.mla >= 0) cell += ggml::strf(" mla=%d", test.mla);
    if (std::find(seen.begin(), seen.end(), cell) != seen.end()) continue;
    seen.push_back(cell);
    std::fprintf(stderr, "llama-bench: plan for %s\n", cell.c_str());
    const common::Settings one = bench::settings_of(settings, test);
    status = std::max(status, common::print_plan(common::plan_run(one, 1), one));
  }
  return status;
}

/// The default's name is an old custom; hardly any machine has the file.
void check_default_model(const common::Settings& settings) {
  const std::string name = bench::default_grid().models.front();
  std::error_code unreadable;  // loading says why
  if (!settings.grid.models.empty() || std::filesystem::exists(name, unreadable) || unreadable) return;
  throw ggml::Error(ggml::ErrorCode::invalid_argument, "no model: -m is not given, and there is no " + name,
                    "scripts/get-model.sh smollm2 fetches a small one");
}

int run(const common::Settings& settings) {
  check_default_model(settings);
  if (settings.placement.dry_run != common::DryRun::off) return print_plans(settings);
  constexpr int kVerbose = 4;  // the log of loading would stand between the results
  if (settings.log.verbosity < kVerbose) ggml::set_log_level(ggml::LogLevel::error);
  const bench::Grid grid = grid_of(settings);
  const bench::Grid defaults = bench::default_grid();
  const std::vector<bench::Test> tests = tests_of(settings);
  if (tests.empty()) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "there is nothing to measure: -p and -n are 0",
                      "give one of -p, -n, -pg and -gp a number of tokens");
  }
  bench::Runner runner(settings);
  // Columns depend on the devices.
  const bench::RunFacts facts = bench::run_facts(settings, *runner.prepare(tests.front()).machine);
  const std::unique_ptr<bench::Printer> printers[] = {
      bench::make_printer(grid.output, stdout, grid, defaults, facts),
      bench::make_printer(grid.output_stderr, stderr, grid, defaults, facts)};
  for (const auto& printer : printers) {
    if (printer != nullptr) printer->begin();
  }
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
