#include "llama/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>

#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/sampling_ranges.h"
#include "llama/vocab.h"
#include "sample/dry.h"
#include "sample/infill.h"
#include "sample/random.h"
#include "sample/token_window.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;
using ggml::SampleAdjust;
using ggml::SampleDraw;
using ggml::SampleStage;
using ggml::strf;

namespace {

constexpr std::uint32_t kRandomSeed = 0xFFFFFFFFu;

SampleStage stage_of(SamplerKind kind) {
  switch (kind) {
    case SamplerKind::penalties:
      return SampleStage::penalties;
    case SamplerKind::dry:
      return SampleStage::dry;
    case SamplerKind::top_n_sigma:
      return SampleStage::top_n_sigma;
    case SamplerKind::top_k:
      return SampleStage::top_k;
    case SamplerKind::typical_p:
      return SampleStage::typical;
    case SamplerKind::top_p:
      return SampleStage::top_p;
    case SamplerKind::min_p:
      return SampleStage::min_p;
    case SamplerKind::tail_free:
      return SampleStage::tail_free;
    case SamplerKind::xtc:
      return SampleStage::xtc;
    case SamplerKind::temperature:
      return SampleStage::temperature;
    case SamplerKind::infill:
      return SampleStage::host;
    case SamplerKind::adaptive_p:
      return SampleStage::none;  // it is the draw
  }
  return SampleStage::none;
}

[[noreturn]] void refuse(std::string_view name, const std::string& allowed, double value) {
  throw Error(ErrorCode::invalid_argument,
              strf("%s must be %s, got %g", std::string(name).c_str(), allowed.c_str(), value));
}

/// Where a number goes that is a part of a row as it stands.
struct RowNumber {
  float SamplingParams::*from;
  float ggml::SampleRow::*to;
};

constexpr RowNumber kRowNumbers[] = {
    {&SamplingParams::temperature, &ggml::SampleRow::temperature},
    {&SamplingParams::dynatemp_range, &ggml::SampleRow::dynatemp_range},
    {&SamplingParams::dynatemp_exponent, &ggml::SampleRow::dynatemp_exponent},
    {&SamplingParams::top_p, &ggml::SampleRow::top_p},
    {&SamplingParams::min_p, &ggml::SampleRow::min_p},
    {&SamplingParams::typical_p, &ggml::SampleRow::typical_p},
    {&SamplingParams::top_n_sigma, &ggml::SampleRow::top_n_sigma},
    {&SamplingParams::tfs_z, &ggml::SampleRow::tfs_z},
    {&SamplingParams::xtc_probability, &ggml::SampleRow::xtc_probability},
    {&SamplingParams::xtc_threshold, &ggml::SampleRow::xtc_threshold},
    {&SamplingParams::repeat_penalty, &ggml::SampleRow::repeat_penalty},
    {&SamplingParams::frequency_penalty, &ggml::SampleRow::frequency_penalty},
    {&SamplingParams::presence_penalty, &ggml::SampleRow::presence_penalty},
    {&SamplingParams::mirostat_tau, &ggml::SampleRow::mirostat_tau},
    {&SamplingParams::mirostat_eta, &ggml::SampleRow::mirostat_eta},
};

void check(const SamplingParams& p, const Vocab& vocab) {
  for (const RealParam& param : real_params()) {
    const auto value = static_cast<double>(p.*param.value);
    if (!allows(param, value)) refuse(param.name, range_text(param), value);
  }
  for (const WholeParam& param : whole_params())
    if (!allows(param, p.*param.value)) refuse(param.name, range_text(param), p.*param.value);
  if (p.n_probs < 0 || p.n_probs > ggml::kMaxReportedProbs) refuse("n_probs", "0 to 128", p.n_probs);
  if (p.samplers.size() > ggml::kMaxSampleStages)
    refuse("the number of samplers", "at most 16", static_cast<double>(p.samplers.size()));
  if (p.dry_breakers.size() > static_cast<std::size_t>(kMaxDryBreakers)) {
    throw Error(ErrorCode::invalid_argument,
                strf("dry_sequence_breakers: %zu strings, %d are allowed", p.dry_breakers.size(), kMaxDryBreakers));
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (!vocab.contains(token))
      throw Error(ErrorCode::invalid_argument,
                  strf("logit_bias names token %d; the vocabulary has %d tokens", token, vocab.n_tokens()));
    if (std::isnan(bias) || static_cast<double>(bias) > kMaxLogitBias)
      refuse("a logit_bias", "a number of at most 1e9", static_cast<double>(bias));
  }
}

/// The parameters, checked; what 0 switches off is off.
SamplingParams settled(const SamplingParams& given, const Vocab& vocab) {
  check(given, vocab);
  SamplingParams params = given;
  if (params.repeat_penalty == 0.0f) params.repeat_penalty = 1.0f;
  return params;
}

bool banned(const SampleAdjust& entry) {
  return entry.bias == -INFINITY;
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
  for (const auto& [token, bias] : biases) list.push_back({token, bias, 0, 0});
  return list;
}

/// What is the same for every token. Stages that are not listed do not read their numbers.
ggml::SampleRow fixed_row(const SamplingParams& p) {
  ggml::SampleRow row{};
  for (const RowNumber& number : kRowNumbers) row.*number.to = p.*number.from;
  row.top_k = p.top_k;
  row.min_keep = p.min_keep;
  row.n_probs = p.n_probs;
  row.report_post = p.post_sampling_probs ? 1 : 0;
  row.adaptive_new = p.adaptive_new_p ? 1 : 0;
  row.mask_row = -1;
  row.mirostat_mu = 2.0f * p.mirostat_tau;
  if (p.mirostat != 0) {
    row.stages[0] = SampleStage::temperature;
    row.dynatemp_range = 0;  // the temperature in front of Mirostat is the plain one
    row.draw = p.mirostat == 1 ? SampleDraw::mirostat1 : SampleDraw::mirostat2;
    return row;
  }
  for (std::size_t i = 0; i < p.samplers.size(); ++i) {
    row.stages[i] = stage_of(p.samplers[i]);
    if (p.samplers[i] == SamplerKind::adaptive_p) row.draw = SampleDraw::adaptive;
  }
  return row;
}

bool acts(const SamplingParams& p, SamplerKind kind) {
  return p.mirostat == 0 && std::find(p.samplers.begin(), p.samplers.end(), kind) != p.samplers.end();
}

bool penalises(const SamplingParams& p) {
  const bool any = p.repeat_penalty != 1.0f || p.frequency_penalty != 0.0f || p.presence_penalty != 0.0f;
  return any && p.penalty_last_n != 0 && acts(p, SamplerKind::penalties);
}

bool dries(const SamplingParams& p) {
  return Dry::is_on(p) && acts(p, SamplerKind::dry);
}

/// What changes for single tokens: the biases of the request, then the tokens of the penalty window. An entry is found
/// in one step, so that a token costs the same however long the window is.
class Adjustments {
 public:
  /// n_vocab  0 when nothing but the biases will be asked for
  Adjustments(std::vector<SampleAdjust> biases, std::size_t n_vocab)
      : entries_(std::move(biases)), n_fixed_(entries_.size()), place_(n_vocab, -1) {
    if (place_.empty()) return;
    // Reserved, so that the usual windows fill up without an allocation on the path of a token.
    constexpr std::size_t kReserved = 1024;
    entries_.reserve(n_fixed_ + std::min(kReserved, n_vocab));
    for (std::size_t i = 0; i < n_fixed_; ++i) place(entries_[i].token) = static_cast<std::int32_t>(i);
  }

  [[nodiscard]] const std::vector<SampleAdjust>& entries() const { return entries_; }
  /// Where the token's entry is, or -1.
  [[nodiscard]] std::int32_t find(Token token) const { return place_[static_cast<std::size_t>(token)]; }

  void count(Token token) {
    if (find(token) < 0) {
      place(token) = static_cast<std::int32_t>(entries_.size());
      entries_.push_back({token, 0.0f, 0, 0.0f});
    }
    ++entries_[static_cast<std::size_t>(find(token))].count;
  }

  void uncount(Token token) {
    const auto at = static_cast<std::size_t>(find(token));
    if (--entries_[at].count > 0 || at < n_fixed_) return;
    entries_[at] = entries_.back();
    place(entries_[at].token) = static_cast<std::int32_t>(at);
    place(token) = -1;
    entries_.pop_back();
  }

 private:
  std::int32_t& place(Token token) { return place_[static_cast<std::size_t>(token)]; }

  std::vector<SampleAdjust> entries_;
  std::size_t n_fixed_;
  std::vector<std::int32_t> place_;  // [n_vocab]
};

/// The mean probability that adaptive-p has seen, older ones the less.
class AdaptiveMean {
 public:
  explicit AdaptiveMean(const SamplingParams& p)
      : target_(p.adaptive_target), decay_(std::clamp(p.adaptive_decay, 0.0f, 0.99f)) {
    sum_ = target_ / (1.0f - decay_);
    weight_ = 1.0f / (1.0f - decay_);
  }

  /// What to aim at, so that the mean comes near the target.
  [[nodiscard]] float aim() const {
    return target_ < 0.0f ? target_ : std::clamp(2.0f * target_ - sum_ / weight_, 0.0f, 1.0f);
  }
  void add(float p) {
    sum_ = p + decay_ * sum_;
    weight_ = 1.0f + decay_ * weight_;
  }

 private:
  float target_, decay_;
  float sum_ = 0, weight_ = 0;
};

}  // namespace

struct Sampler::Impl {
  Impl(const SamplingParams& given, const Vocab& v, int n_ctx);

  void remember(Token token);
  /// Whether a mask allows ends of generation and nothing else.
  [[nodiscard]] bool only_ends(std::span<const std::uint32_t> words) const;

  SamplingParams params;
  const Vocab& vocab;
  std::uint32_t seed;
  // Each draw has a generator of its own, all with the same seed.
  LookAhead<double, draw_double> uniforms;
  LookAhead<float, draw_float> xtc_uniforms;
  ggml::SampleRow row;
  Adjustments adjustments;
  std::optional<TokenWindow> penalty_window;
  std::optional<Dry> dry;
  std::optional<AdaptiveMean> adaptive;
  ggml::SampleResult last{};  // the newest outcome
  std::optional<InfillStage> infill;
  std::vector<std::byte> scratch;  // with a host stage
  TokenMask* mask = nullptr;
  bool bans_ends = false;  // some bias of -infinity is against an end of generation
};

Sampler::Impl::Impl(const SamplingParams& given, const Vocab& v, int n_ctx)
    : params(settled(given, v)),
      vocab(v),
      seed(params.seed == kRandomSeed ? static_cast<std::uint32_t>(std::random_device{}()) : params.seed),
      uniforms(seed),
      xtc_uniforms(seed),
      row(fixed_row(params)),
      adjustments(collect_biases(params, v),
                  penalises(params) || dries(params) ? static_cast<std::size_t>(v.n_tokens()) : 0) {
  last.token = kNoToken;
  bans_ends = std::any_of(adjustments.entries().begin(), adjustments.entries().end(),
                          [&](const SampleAdjust& a) { return banned(a) && v.is_eog(a.token); });
  const auto size = [n_ctx](int last_n) { return static_cast<std::size_t>(last_n < 0 ? n_ctx : last_n); };
  if (penalises(params)) penalty_window.emplace(size(params.penalty_last_n));
  if (dries(params)) dry.emplace(params, v, size(params.dry_penalty_last_n));
  if (acts(params, SamplerKind::adaptive_p)) adaptive.emplace(params);
  if (acts(params, SamplerKind::infill)) {
    infill.emplace(v);
    scratch.resize(ggml::sampler_scratch_bytes(static_cast<std::size_t>(v.n_tokens())));
  }
}

void Sampler::Impl::remember(Token token) {
  if (!vocab.contains(token)) return;
  if (dry) dry->accept(token);
  if (!penalty_window) return;
  adjustments.count(token);
  if (const Token gone = penalty_window->push(token); gone != kNoToken) adjustments.uncount(gone);
}

bool Sampler::Impl::only_ends(std::span<const std::uint32_t> words) const {
  std::size_t n_allowed = 0;
  for (const std::uint32_t word : words) {
    n_allowed += static_cast<std::size_t>(std::popcount(word));
    if (n_allowed > vocab.eog_tokens().size()) return false;
  }
  std::size_t n_ends = 0;
  for (const Token token : vocab.eog_tokens()) {
    const auto t = static_cast<std::size_t>(token);
    if (t / 32 < words.size()) n_ends += (words[t / 32] >> (t % 32)) & 1U;
  }
  return n_allowed > 0 && n_allowed == n_ends;
}

Sampler::Sampler(const SamplingParams& params, const Vocab& vocab, int n_ctx)
    : impl_(std::make_unique<Impl>(params, vocab, n_ctx)) {}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

void Sampler::set_mask(TokenMask* mask) {
  impl_->mask = mask;
}
const SamplingParams& Sampler::params() const {
  return impl_->params;
}
std::uint32_t Sampler::seed() const {
  return impl_->seed;
}
bool Sampler::on_host() const {
  return impl_->infill.has_value();
}

void Sampler::accept(Token token) {
  impl_->remember(token);
  // A token that was put in the place of the sampled one (a forced end of thinking) was not drawn.
  if (impl_->adaptive && token == impl_->last.token && token >= 0) impl_->adaptive->add(impl_->last.adaptive_p);
  if (impl_->mask != nullptr && token >= 0) impl_->mask->accept(token);
}

void Sampler::accept_prompt(std::span<const Token> tokens) {
  for (const Token token : tokens) impl_->remember(token);
}

void Sampler::prepare(ggml::SampleRow& row, std::vector<SampleAdjust>& adjust) {
  Impl& s = *impl_;
  row = s.row;
  for (std::size_t i = 0; i < 2; ++i) {
    row.uniform[i] = s.uniforms.next()[i];
    row.xtc_uniform[i] = s.xtc_uniforms.next()[i];
  }
  if (s.adaptive) row.adaptive_target = s.adaptive->aim();
  const std::size_t begin = adjust.size();
  const std::vector<SampleAdjust>& entries = s.adjustments.entries();
  adjust.insert(adjust.end(), entries.begin(), entries.end());
  if (!s.dry) return;
  for (const Dry::Penalty& penalty : s.dry->penalties()) {
    const std::int32_t at = s.adjustments.find(penalty.token);
    if (at >= 0) {
      adjust[begin + static_cast<std::size_t>(at)].dry = penalty.amount;
    } else {
      adjust.push_back({penalty.token, 0.0f, 0, penalty.amount});
    }
  }
}

bool Sampler::fill_mask(std::span<std::uint32_t> words, std::span<SampleAdjust> adjust) {
  Impl& s = *impl_;
  if (s.mask == nullptr || !s.mask->fill(words)) return false;
  if (!s.bans_ends || !s.only_ends(words)) return true;
  for (SampleAdjust& entry : adjust)
    if (banned(entry) && s.vocab.is_eog(entry.token)) entry.bias = 0.0f;
  return true;
}

ggml::SampleResult Sampler::sample_on_host(const ggml::SampleRow& row, std::span<const float> logits,
                                           std::span<const SampleAdjust> adjust,
                                           std::span<const std::uint32_t> allowed) {
  Impl& s = *impl_;
  ggml::SampleResult result{};
  if (s.scratch.size() < ggml::sampler_scratch_bytes(logits.size()))
    s.scratch.resize(ggml::sampler_scratch_bytes(logits.size()));
  ggml::run_sampler_chain(row, {logits, adjust, allowed, s.infill ? &*s.infill : nullptr}, s.scratch, result);
  return result;
}

void Sampler::collect(const ggml::SampleResult& result) {
  Impl& s = *impl_;
  s.uniforms.use(result.n_uniform);
  s.xtc_uniforms.use(result.n_xtc_uniform);
  s.row.mirostat_mu = result.mirostat_mu;
  s.last.token = result.token;
  s.last.adaptive_p = result.adaptive_p;
}

}  // namespace llama
