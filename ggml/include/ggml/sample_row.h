#pragma once

#include <cstdint>

namespace ggml {

inline constexpr int kMaxSampleStages = 8;

/// One step of the device form of the sampler chain, in the order the request gave.
enum class SampleStage : std::uint8_t { none, penalties, top_k, typical, top_p, min_p, temperature };

/// The sampling parameters of one output row (one request); lies in a port as is. Meaning and order: see docs of
/// --samplers.
struct SampleRow {
  SampleStage stages[kMaxSampleStages];
  float temperature;        // <= 0: greedy, also when the stages do not name it
  std::int32_t top_k;       // <= 0: all
  float top_p;              // 1: off
  float min_p;              // 0: off
  float typical_p;          // 1: off
  float repeat_penalty;     // 1: off
  float frequency_penalty;  // 0: off
  float presence_penalty;   // 0: off
  std::int32_t min_keep;
  float uniform;              // the draw in [0, 1), from the request's generator
  std::int32_t logits_row;    // row of the logits tensor; < 0: this row is not sampled
  std::int32_t adjust_begin;  // range in the adjustment port: token-wise logit biases and penalty counts
  std::int32_t adjust_end;
  std::int32_t mask_row;     // row of the bit-mask port (allowed tokens), -1 for none
  std::int32_t n_probs;      // how many of the likeliest to report, at most kMaxReportedProbs; 0: report nothing
  std::int32_t report_post;  // 1: report probabilities after the chain, 0: softmax of the raw logits
};

/// A token whose logit is changed before the chain: bias added (may be -inf), count of its occurrences in the penalty
/// window.
struct SampleAdjust {
  std::int32_t token;
  float bias;
  std::int32_t count;
};

inline constexpr int kMaxReportedProbs = 128;

/// What the sample op writes for one row.
struct SampleResult {
  std::int32_t token;  // -1: no token is allowed (mask, biases of -inf, NaN logits), or the row is not sampled
  float logprob;       // of the chosen token, per SampleRow::report_post; 0 when n_probs was 0
  std::int32_t n_probs;
  std::int32_t reserved;
  std::int32_t ids[kMaxReportedProbs];  // the likeliest first
  float logprobs[kMaxReportedProbs];
};

}  // namespace ggml
