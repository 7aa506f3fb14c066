#pragma once

#include <atomic>

#include "common/args/settings.h"
#include "common/setup/planned_run.h"
#include "llama/context.h"

/// What llama-perplexity does, a file each. All print results to standard output and notes to the log.
namespace perplexity {

/// What every mode works with.
struct Run {
  const common::Settings& settings;
  const llama::Model& model;
  const common::PlannedRun& planned;
  const std::atomic<bool>& stop;  // set by a signal: end before the next chunk and leave no half file
};

/// Perplexity of the text in chunks, or with --ppl-stride in overlapping windows; writes --kl-divergence-base.
void run_chunks(const Run& run);
/// Compares with the file of --kl-divergence-base.
void run_kl_divergence(const Run& run);
void run_hellaswag(const Run& run);
void run_winogrande(const Run& run);
void run_multiple_choice(const Run& run);

}  // namespace perplexity
