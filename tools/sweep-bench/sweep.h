#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "llama/context.h"

namespace sweep {

/// What one run measures; see docs: a row for every `n_ubatch` tokens of cache.
struct SweepParams {
  int n_predict = -1;   // tokens generated per row; <= 0: n_ubatch / 4
  int repetitions = 1;  // of the first row, whose times are divided by it
  int stride = 1;       // print only rows whose number is a multiple; the others still fill the cache
  bool warmup_batch = false;
  int least_rows = 1;  // the sweep starts over until it has reported so many
};

/// One measured row.
struct Row {
  int round = 0;  // how often the sweep had started over
  int pp = 0, tg = 0, n_kv = 0;
  double t_pp_s = 0, t_tg_s = 0;
  double tg_bytes = 0;  // bytes of weights and KV that the generation had to read
  double pp_ops = 0;    // integer operations of the prompt's matrix products

  [[nodiscard]] double speed_pp() const { return pp / t_pp_s; }  // tokens/s
  [[nodiscard]] double speed_tg() const { return tg / t_tg_s; }
};

/// Runs the sweep over one sequence of `context` and hands every measured row to `report` as soon as it is there.
/// Throws Error when a step fails, and when the last row does not fit: the context is no multiple of n_ubatch.
void run_sweep(llama::Context& context, const SweepParams& params, const std::function<void(const Row&)>& report);

}  // namespace sweep
