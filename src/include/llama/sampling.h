#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llama/types.h"

namespace llama {

/// The sampler names of --samplers, each with its one-letter form for --sampling-seq in the order of the docs.
enum class SamplerKind : std::uint8_t { penalties, top_k, typical_p, top_p, min_p, temperature };

/// Sampling parameters of one request; defaults are those of the command line (docs/parameters.md).
struct SamplingParams {
  std::uint32_t seed = 0xFFFFFFFFu;  // 0xFFFFFFFF: random
  float temperature = 0.8f;          // <= 0: greedy
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float typical_p = 1.0f;
  int min_keep = 0;
  int penalty_last_n = 64;  // 0: off, -1: context size
  float repeat_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  std::vector<std::pair<Token, float>> logit_bias;  // -infinity bans a token
  bool ignore_eos = false;
  int n_probs = 0;  // alternatives to report with their probabilities
  bool post_sampling_probs = false;
  std::vector<SamplerKind> samplers = {SamplerKind::penalties, SamplerKind::top_k, SamplerKind::typical_p,
                                       SamplerKind::top_p,     SamplerKind::min_p, SamplerKind::temperature};
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
