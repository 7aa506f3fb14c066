#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llama/types.h"

namespace llama {

/// The samplers that --samplers and --sampling-seq name (docs/sampling.md).
enum class SamplerKind : std::uint8_t {
  penalties,
  dry,
  top_n_sigma,
  top_k,
  typical_p,
  top_p,
  min_p,
  tail_free,
  xtc,
  temperature,
  infill,
  adaptive_p,  // wherever it is listed, it makes the final draw
};

/// Sampling parameters of one request; defaults are those of the command line (docs/parameters.md).
struct SamplingParams {
  std::uint32_t seed = 0xFFFFFFFFu;  // 0xFFFFFFFF: random
  float temperature = 0.8f;          // <= 0: greedy
  float dynatemp_range = 0.0f;       // <= 0: off
  float dynatemp_exponent = 1.0f;
  int top_k = 40;                // <= 0: off
  float top_p = 0.95f;           // 1: off
  float min_p = 0.05f;           // 0: off
  float typical_p = 1.0f;        // 1: off
  float top_n_sigma = -1;        // <= 0: off
  float tfs_z = 1.0f;            // 1: off
  float xtc_probability = 0.0f;  // 0: off
  float xtc_threshold = 0.1f;    // above 0.5: off
  int min_keep = 0;
  int penalty_last_n = 64;  // 0: off, -1: context size
  float repeat_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float dry_multiplier = 0.0f;  // 0: off
  float dry_base = 1.75f;       // below 1: off
  int dry_allowed_length = 2;
  int dry_penalty_last_n = 64;  // 0: off, -1: context size
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};
  int mirostat = 0;  // 1 or 2: temperature and Mirostat instead of the chain
  float mirostat_tau = 5.0f;
  float mirostat_eta = 0.1f;
  float adaptive_target = -1.0f;  // negative: a plain draw
  float adaptive_decay = 0.9f;    // clamped to 0 .. 0.99
  bool adaptive_new_p = false;    // average the probabilities after the transformation instead of before it
  std::vector<std::pair<Token, float>> logit_bias;  // -infinity bans a token
  bool ignore_eos = false;
  int n_probs = 0;  // alternatives to report with their probabilities
  bool post_sampling_probs = false;
  std::vector<SamplerKind> samplers = {SamplerKind::penalties, SamplerKind::dry,       SamplerKind::top_n_sigma,
                                       SamplerKind::top_k,     SamplerKind::typical_p, SamplerKind::top_p,
                                       SamplerKind::min_p,     SamplerKind::xtc,       SamplerKind::temperature};
};

struct TokenProb {
  Token token = -1;
  float logprob = 0.0f;
};

struct SampledToken {
  Token token = -1;
  float logprob = 0.0f;
  std::vector<TokenProb> top;  // n_probs entries, the likeliest first
};

}  // namespace llama
