#include "llama/sampler.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/vocab.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;
using ggml::SampleAdjust;
using ggml::SampleStage;
using ggml::strf;

namespace {

constexpr std::uint32_t kRandomSeed = 0xFFFFFFFFu;

SampleStage stage_of(SamplerKind kind) {
  switch (kind) {
    case SamplerKind::penalties:
      return SampleStage::penalties;
    case SamplerKind::top_k:
      return SampleStage::top_k;
    case SamplerKind::typical_p:
      return SampleStage::typical;
    case SamplerKind::top_p:
      return SampleStage::top_p;
    case SamplerKind::min_p:
      return SampleStage::min_p;
    case SamplerKind::temperature:
      return SampleStage::temperature;
  }
  return SampleStage::none;
}

void require(bool ok, const char* name, double value, const char* allowed) {
  if (!ok) throw Error(ErrorCode::invalid_argument, strf("%s must be %s, got %g", name, allowed, value));
}

void check_real(const char* name, float value, float min, float max, const char* allowed) {
  require(std::isfinite(value) && value >= min && value <= max, name, static_cast<double>(value), allowed);
}

void check(const SamplingParams& p, const Vocab& vocab) {
  constexpr float kAny = 1e30f;
  check_real("temperature", p.temperature, -kAny, kAny, "a finite number");
  check_real("top_p", p.top_p, -kAny, kAny, "a finite number");
  check_real("min_p", p.min_p, -kAny, kAny, "a finite number");
  check_real("typical_p", p.typical_p, -kAny, kAny, "a finite number");
  check_real("repeat_penalty", p.repeat_penalty, 1e-6f, kAny, "a number above 0");
  check_real("frequency_penalty", p.frequency_penalty, -kAny, kAny, "a finite number");
  check_real("presence_penalty", p.presence_penalty, -kAny, kAny, "a finite number");
  require(p.min_keep >= 0, "min_keep", p.min_keep, "0 or more");
  require(p.penalty_last_n >= -1, "repeat_last_n", p.penalty_last_n, "-1 (the context size), 0 (off) or more");
  require(p.n_probs >= 0 && p.n_probs <= ggml::kMaxReportedProbs, "n_probs", p.n_probs, "0 to 128");
  require(p.samplers.size() <= ggml::kMaxSampleStages, "the number of samplers", static_cast<double>(p.samplers.size()),
          "at most 8");
  for (const auto& [token, bias] : p.logit_bias) {
    if (!vocab.contains(token))
      throw Error(ErrorCode::invalid_argument,
                  strf("logit_bias names token %d; the vocabulary has %d tokens", token, vocab.n_tokens()));
    require(!std::isnan(bias) && bias < kAny, "a logit_bias", static_cast<double>(bias), "a number below 1e30");
  }
}

/// All biases of a request, each token once: its own, and -infinity for what must never be sampled.
std::vector<SampleAdjust> collect_biases(const SamplingParams& p, const Vocab& vocab) {
  std::map<Token, float> biases;
  for (const auto& [token, bias] : p.logit_bias) biases[token] += bias;
  if (p.ignore_eos)
    for (const Token token : vocab.eog_tokens()) biases[token] = -INFINITY;
  for (const Token token : vocab.suppressed_tokens()) biases[token] = -INFINITY;
  std::vector<SampleAdjust> list;
  list.reserve(biases.size());
  for (const auto& [token, bias] : biases) list.push_back({token, bias, 0});
  return list;
}

/// libstdc++'s uniform_real_distribution<double>: two outputs, low word first.
double draw(std::mt19937& generator) {
  const double low = generator();
  const double high = generator();
  const double value = (low + high * 4294967296.0) / 18446744073709551616.0;
  return value < 1.0 ? value : std::nextafter(1.0, 0.0);
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, const Vocab& vocab, int n_ctx)
    : params_(params),
      seed_(params.seed == kRandomSeed ? static_cast<std::uint32_t>(std::random_device{}()) : params.seed),
      generator_(seed_) {
  check(params_, vocab);
  bias_ = collect_biases(params_, vocab);
  for (std::size_t i = 0; i < params_.samplers.size(); ++i) row_.stages[i] = stage_of(params_.samplers[i]);
  row_.temperature = params_.temperature;
  row_.top_k = params_.top_k;
  row_.top_p = params_.top_p;
  row_.min_p = params_.min_p;
  row_.typical_p = params_.typical_p;
  row_.repeat_penalty = params_.repeat_penalty;
  row_.frequency_penalty = params_.frequency_penalty;
  row_.presence_penalty = params_.presence_penalty;
  row_.min_keep = params_.min_keep;
  row_.n_probs = params_.n_probs;
  row_.report_post = params_.post_sampling_probs ? 1 : 0;
  row_.mask_row = -1;
  const int last_n = params_.penalty_last_n < 0 ? n_ctx : params_.penalty_last_n;
  const bool listed =
      std::find(params_.samplers.begin(), params_.samplers.end(), SamplerKind::penalties) != params_.samplers.end();
  const bool acts =
      params_.repeat_penalty != 1.0f || params_.frequency_penalty != 0.0f || params_.presence_penalty != 0.0f;
  penalties_ = listed && acts && last_n > 0;
  if (!penalties_) return;
  window_.resize(static_cast<std::size_t>(last_n));
  counts_.assign(static_cast<std::size_t>(vocab.n_tokens()), 0);
}

void Sampler::remember(Token token) {
  if (!penalties_ || token < 0 || static_cast<std::size_t>(token) >= counts_.size()) return;
  if (window_size_ == window_.size()) {
    --counts_[static_cast<std::size_t>(window_[window_begin_])];
    window_[window_begin_] = token;
    window_begin_ = (window_begin_ + 1) % window_.size();
  } else {
    window_[window_size_++] = token;  // begins at 0 until it is full
  }
  ++counts_[static_cast<std::size_t>(token)];
}

void Sampler::accept(Token token) {
  remember(token);
  if (mask_ != nullptr && token >= 0) mask_->accept(token);
}

void Sampler::accept_prompt(std::span<const Token> tokens) {
  for (const Token token : tokens) remember(token);
}

void Sampler::prepare(ggml::SampleRow& row, std::vector<SampleAdjust>& adjust) {
  row = row_;
  row.uniform = std::min(static_cast<float>(draw(generator_)), std::nextafter(1.0f, 0.0f));
  for (SampleAdjust entry : bias_) {
    if (penalties_) entry.count = counts_[static_cast<std::size_t>(entry.token)];
    adjust.push_back(entry);
  }
  if (!penalties_) return;
  // Each token of the window once: the sign of its count marks those already listed.
  for (const SampleAdjust& entry : bias_) {
    std::int32_t& count = counts_[static_cast<std::size_t>(entry.token)];
    count = -count;
  }
  for (std::size_t i = 0; i < window_size_; ++i) {
    std::int32_t& count = counts_[static_cast<std::size_t>(window_[i])];
    if (count <= 0) continue;
    adjust.push_back({window_[i], 0.0f, count});
    count = -count;
  }
  for (const SampleAdjust& entry : bias_) {
    std::int32_t& count = counts_[static_cast<std::size_t>(entry.token)];
    count = std::abs(count);
  }
  for (std::size_t i = 0; i < window_size_; ++i) {
    std::int32_t& count = counts_[static_cast<std::size_t>(window_[i])];
    count = std::abs(count);
  }
}

}  // namespace llama
