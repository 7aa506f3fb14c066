#pragma once

#include <array>
#include <string>

namespace common {

struct RunTimings {
  double prompt_ms = 0, generate_ms = 0;
  int n_prompt = 0, n_generated = 0;  // tokens
};

/// The lines about prompt, generation and both, in the form that users' scripts read; `unit`: what generated tokens are
/// called ("tokens", "runs").
[[nodiscard]] std::array<std::string, 3> timing_lines(const RunTimings& timings, const char* unit);
/// Those with which a program ends, on stderr.
void print_timings(const RunTimings& timings);

}  // namespace common
