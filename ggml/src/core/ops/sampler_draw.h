#pragma once

#include "sampler_candidates.h"

namespace ggml::sampler {

/// Takes one candidate as SampleRow::draw says and notes in `result` the state after it and the random numbers used.
/// Returns its index in the list; c.n when there is none.
[[nodiscard]] std::size_t draw(const SampleRow& row, std::size_t n_vocab, Candidates& c, SampleResult& result);

}  // namespace ggml::sampler
