#include "common/log/timings.h"

#include <cstdio>

#include "ggml/log.h"

namespace common {

std::array<std::string, 3> timing_lines(const RunTimings& timings, const char* unit) {
  const auto per = [](double a, double b) { return b > 0 ? a / b : 0.0; };
  const auto line = [&](const char* name, double ms, int n, const char* what) {
    return ggml::strf("%s time = %10.2f ms / %5d %s (%8.2f ms per token, %8.2f tokens per second)", name, ms, n, what,
                      per(ms, n), per(1000.0 * n, ms));
  };
  return {line("prompt eval", timings.prompt_ms, timings.n_prompt, "tokens"),
          line("       eval", timings.generate_ms, timings.n_generated, unit),
          ggml::strf("      total time = %10.2f ms / %5d tokens", timings.prompt_ms + timings.generate_ms,
                     timings.n_prompt + timings.n_generated)};
}

void print_timings(const RunTimings& timings) {
  std::fprintf(stderr, "\n");
  for (const std::string& line : timing_lines(timings, "runs")) std::fprintf(stderr, "llama_perf: %s\n", line.c_str());
}

}  // namespace common
