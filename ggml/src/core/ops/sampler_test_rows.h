#pragma once

#include <cmath>
#include <initializer_list>
#include <vector>

#include "ggml/sampler_chain.h"

namespace ggml::test {

/// A row in which nothing is switched on.
inline SampleRow plain_row() {
  SampleRow row{};
  row.temperature = 1;
  row.dynatemp_exponent = 1;
  row.top_p = 1;
  row.typical_p = 1;
  row.tfs_z = 1;
  row.repeat_penalty = 1;
  row.mask_row = -1;
  row.n_probs = kMaxReportedProbs;
  row.report_post = 1;
  return row;
}

inline SampleRow with_stage(SampleStage stage) {
  SampleRow row = plain_row();
  row.stages[0] = stage;
  return row;
}

inline SampleResult sample(const SampleRow& row, const SamplerInput& in) {
  std::vector<std::byte> scratch(sampler_scratch_bytes(in.logits.size()));
  SampleResult result{};
  run_sampler_chain(row, in, scratch, result);
  return result;
}

inline SampleResult sample(const SampleRow& row, const std::vector<float>& logits) {
  return sample(row, {logits, {}, {}});
}

inline std::vector<float> logits_of(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

/// The reported tokens, the likeliest first.
inline std::vector<int> survivors(const SampleResult& result) {
  return {result.ids, result.ids + result.n_probs};
}

inline float probability(const SampleResult& result, int i) {
  return std::exp(result.logprobs[i]);
}

}  // namespace ggml::test
