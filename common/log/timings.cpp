#include "common/log/timings.h"

#include <cstdio>

namespace common {

void print_timings(const RunTimings& timings) {
  const auto per = [](double a, double b) { return b > 0 ? a / b : 0.0; };
  const auto line = [&](const char* name, double ms, int n, const char* unit) {
    std::fprintf(stderr, "llama_perf: %s time = %10.2f ms / %5d %s (%8.2f ms per token, %8.2f tokens per second)\n",
                 name, ms, n, unit, per(ms, n), per(1000.0 * n, ms));
  };
  std::fprintf(stderr, "\n");
  line("prompt eval", timings.prompt_ms, timings.n_prompt, "tokens");
  line("       eval", timings.generate_ms, timings.n_generated, "runs");
  std::fprintf(stderr, "llama_perf:       total time = %10.2f ms / %5d tokens\n",
               timings.prompt_ms + timings.generate_ms, timings.n_prompt + timings.n_generated);
}

}  // namespace common
