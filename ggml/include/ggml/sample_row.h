#pragma once

#include <cstdint>

namespace ggml {

inline constexpr int kMaxSampleStages = 16;

/// One step of the sampler chain, in the order the request gave. docs/sampling.md has the formula of each.
enum class SampleStage : std::uint8_t {
  none,
  penalties,
  dry,
  top_n_sigma,
  top_k,
  typical,
  top_p,
  min_p,
  tail_free,
  xtc,
  temperature,
  host,  // SamplerInput::host_stage; only where a host runs the chain, a device has no such rows
};

/// How the token is taken from the candidates that the stages leave.
enum class SampleDraw : std::uint8_t { plain, mirostat1, mirostat2, adaptive };

/// The sampling parameters of one output row (one request); lies in a port as is.
///
/// The row carries the next numbers of the request's generators; the result says how many were used, so that the host
/// advances them by as many. There are two of each because the chain may run twice: first over all tokens, then, when
/// the mask forbids the token it chose, once more over the allowed ones.
struct SampleRow {
  double uniform[2];     // in [0, 1), for the draw
  float xtc_uniform[2];  // in [0, 1), for the XTC stage
  SampleStage stages[kMaxSampleStages];
  float temperature;          // <= 0 without a range: greedy, also when the stages do not name it
  float dynatemp_range;       // 0: off
  float dynatemp_exponent;    // 1: linear in the normalised entropy
  std::int32_t top_k;         // <= 0: all
  float top_p;                // 1: off
  float min_p;                // 0: off
  float typical_p;            // 1: off
  float top_n_sigma;          // <= 0: off
  float tfs_z;                // 1: off
  float xtc_probability;      // 0: off
  float xtc_threshold;        // above 0.5: off
  float repeat_penalty;       // 1: off
  float frequency_penalty;    // 0: off
  float presence_penalty;     // 0: off
  float mirostat_tau;         // target surprise, bits
  float mirostat_eta;         // learning rate
  float mirostat_mu;          // state: the largest surprise allowed now
  float adaptive_target;      // the probability aimed at now; negative: a plain draw
  SampleDraw draw;            // plain where zero
  std::uint8_t adaptive_new;  // 1: SampleResult::adaptive_p is the probability after the transformation
  std::uint8_t reserved[2];
  std::int32_t min_keep;
  std::int32_t logits_row;    // row of the logits tensor; < 0: this row is not sampled
  std::int32_t adjust_begin;  // range in the adjustment port: what changes for single tokens
  std::int32_t adjust_end;
  std::int32_t mask_row;     // row of the bit-mask port (allowed tokens), -1 for none
  std::int32_t n_probs;      // how many of the likeliest to report, at most kMaxReportedProbs; 0: report nothing
  std::int32_t report_post;  // 1: report probabilities after the chain, 0: softmax of the raw logits
};

/// What changes for one token; a row names each token once.
struct SampleAdjust {
  std::int32_t token;
  float bias;          // added before the chain; may be -inf
  std::int32_t count;  // occurrences in the penalty window
  float dry;           // what the DRY stage subtracts
};

inline constexpr int kMaxReportedProbs = 128;

/// What the sample op writes for one row.
struct SampleResult {
  std::int32_t token;  // -1: no token is allowed (mask, biases of -inf, NaN logits), or the row is not sampled
  float logprob;       // of the chosen token, per SampleRow::report_post; 0 when n_probs was 0
  std::int32_t n_probs;
  std::int32_t n_uniform;      // how many of SampleRow::uniform were used: none where a single candidate was left
  std::int32_t n_xtc_uniform;  // how many of SampleRow::xtc_uniform
  float mirostat_mu;           // the state after the draw
  float adaptive_p;  // probability of the chosen token before (or after, as asked) the adaptive transformation
  std::int32_t reserved;
  std::int32_t ids[kMaxReportedProbs];  // the likeliest first
  float logprobs[kMaxReportedProbs];
};

}  // namespace ggml
