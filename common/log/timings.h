#pragma once

namespace common {

struct RunTimings {
  double prompt_ms = 0, generate_ms = 0;
  int n_prompt = 0, n_generated = 0;  // tokens
};

/// The three lines on stderr with which a program ends, in the form that users' scripts read.
void print_timings(const RunTimings& timings);

}  // namespace common
