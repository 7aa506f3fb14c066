#pragma once

#include <span>

#include "sampler_candidates.h"

namespace ggml::sampler {

/// Whether the row always takes the likeliest token.
[[nodiscard]] inline bool is_greedy(const SampleRow& row) {
  return row.temperature <= 0.0f && !(row.dynatemp_range > 0.0f);
}

/// Whether XTC draws a number when it meets two candidates or more.
[[nodiscard]] inline bool xtc_acts(const SampleRow& row) {
  return row.xtc_probability > 0.0f && row.xtc_threshold <= 0.5f;
}

// Each changes the candidates as docs/sampling.md says. Pre: n > 0.
void penalties(const SampleRow& row, std::span<const SampleAdjust> adjust, Candidates& c);
void dry(std::span<const SampleAdjust> adjust, Candidates& c);
void top_n_sigma(const SampleRow& row, Candidates& c);
void top_k(const SampleRow& row, Candidates& c);
void typical(const SampleRow& row, Candidates& c);
void top_p(const SampleRow& row, Candidates& c);
void min_p(const SampleRow& row, Candidates& c);
void tail_free(const SampleRow& row, Candidates& c);
/// What XTC does once its number allowed it.
void exclude_top_choices(const SampleRow& row, Candidates& c);
void temperature(const SampleRow& row, Candidates& c);

}  // namespace ggml::sampler
