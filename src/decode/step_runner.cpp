#include "decode/step_runner.h"

#include <algorithm>
#include <cstring>

#include "ggml/error.h"
#include "ggml/log.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;
using ggml::kKvBlockTokens;

namespace {

double bytes_of(const TensorWithParts& tensor) {
  return tensor ? static_cast<double>(ggml::tensor_bytes(tensor.weight->type, tensor.weight->shape)) : 0.0;
}

bool is_expert_stack(std::size_t role) {
  switch (static_cast<Role>(role)) {
    case Role::ffn_gate_exps:
    case Role::ffn_up_exps:
    case Role::ffn_gate_up_exps:
    case Role::ffn_down_exps:
      return true;
    default:
      return false;
  }
}

constexpr std::size_t kMaxAdapterSets = 8;  // with programs of their own

[[noreturn]] void fail_numbers(const char* what) {
  throw Error(ErrorCode::internal, ggml::strf("the model gave %s that are not numbers", what),
              "the weights may be damaged (--check-tensors looks for it), or a cache type too coarse for this model");
}

/// Ends the step instead of the process when a model's arithmetic has failed.
void check_numbers(std::span<const float> values, const char* what) {
  bool bad = false;
  for (const float v : values) bad |= v != v;
  if (bad) fail_numbers(what);
}

/// The same while the values are copied: a card has just written them past the processor's caches.
void copy_numbers(std::span<const float> values, float* to, const char* what) {
  bool bad = false;
  for (const float v : values) {
    *to++ = v;
    bad |= v != v;
  }
  if (bad) fail_numbers(what);
}

void check_stop(const ggml::StopToken& stop) {
  if (stop.stop != nullptr && stop.stop(stop.user)) throw Error(ErrorCode::cancelled, "the step was cancelled");
}

}  // namespace

StepRunner::StepRunner(const Model& model, const ContextParams& params, const KvCache& cache, const PortSets& ports,
                       ProgramCache& programs, const SegmentBuilder& segments)
    : model_(model), params_(params), cache_(cache), sets_(ports), programs_(programs), segments_(segments) {
  const auto n_seq = static_cast<std::size_t>(params.n_seq_max);
  parts_.reserve(n_seq);
  next_logits_.reserve(n_seq);
  embeddings_.reserve(n_seq);
  outputs_.reserve(static_cast<std::size_t>(params.n_ubatch));
  known_adapter_sets_.reserve(kMaxAdapterSets);
  adjust_.reserve(ports.front()->sizes().adjust_entries);
  const ModelWeights& weights = model.weights();
  for (const TensorSet& layer : weights.layers) {
    for (std::size_t role = 0; role < kRoleCount; ++role)
      (is_expert_stack(role) ? expert_bytes_ : dense_bytes_) += bytes_of(layer.parts[role]);
  }
  const TensorSet& global = weights.global;
  for (const AdapterInfo& adapter : model.adapters()) adapter_bytes_.push_back(static_cast<double>(adapter.bytes));
  head_bytes_ = bytes_of(global[Role::output] ? global[Role::output] : global[Role::token_embd]);
}

void StepRunner::run(const Step& step, std::span<const int> first_cells, const ggml::StopToken& stop,
                     StepOutput& output) {
  weight_bytes_ = kv_bytes_ = 0;
  programs_.reset_scheduler_stats();
  if (!params_.reuse_graphs) programs_.clear();
  prepare_output(step, output);
  try {
    run_ubatches(step, first_cells, stop, output);
  } catch (...) {
    // Devices may still work on what was given to them; the next step fills the same ports.
    programs_.settle();
    throw;
  }
}

void StepRunner::run_ubatches(const Step& step, std::span<const int> first_cells, const ggml::StopToken& stop,
                              StepOutput& output) {
  std::size_t sequence = 0;
  int done = 0;  // tokens of that sequence
  set_ = 0;      // of a step that is one ubatch, so that its programs are compiled once
  for (bool first = true; sequence < step.sequences.size(); first = false) {
    if (!first && sets_.size() > 1) {
      set_ = 1 - set_;
      programs_.wait_for(set_);
    }
    n_tokens_ = 0;
    adapters_ = 0;
    parts_.clear();
    outputs_.clear();
    while (sequence < step.sequences.size() && n_tokens_ < params_.n_ubatch) {
      const StepSequence& s = step.sequences[sequence];
      const int left = static_cast<int>(s.tokens.size()) - done;
      // An encoder's tokens see each other: they stay together.
      if (model_.hparams().is_encoder && left > params_.n_ubatch - n_tokens_ && n_tokens_ > 0) break;
      const Part part{static_cast<int>(sequence), n_tokens_, std::min(left, params_.n_ubatch - n_tokens_),
                      first_cells[sequence] + done};
      done += add_part(s, part);
      if (done == static_cast<int>(s.tokens.size())) {
        ++sequence;
        done = 0;
      }
    }
    adapters_ = adapters_to_apply(adapters_);
    run_ubatch(step, stop, output);
  }
  if (sets_.size() > 1) programs_.synchronise();
}

/// `used`, or all adapters. Each set has programs of its own, and requests could make as many sets as they liked:
/// behind the first ones the rest shares the programs of all adapters, whose factors of 0 change nothing.
AdapterSet StepRunner::adapters_to_apply(AdapterSet used) {
  if (used == 0 || std::ranges::find(known_adapter_sets_, used) != known_adapter_sets_.end()) return used;
  if (known_adapter_sets_.size() == kMaxAdapterSets) {
    const std::size_t n = adapter_bytes_.size();
    return n == kMaxAdapters ? ~AdapterSet{0} : (AdapterSet{1} << n) - 1;
  }
  known_adapter_sets_.push_back(used);
  return used;
}

/// Sizes the result: one row of logits for each output of a sequence without a sampler.
void StepRunner::prepare_output(const Step& step, StepOutput& output) {
  const auto n_vocab = static_cast<std::size_t>(model_.hparams().n_vocab);
  output.result.sequences.resize(step.sequences.size());
  if (params_.embeddings) return prepare_embeddings(step, output);
  std::size_t rows = 0;
  for (std::size_t i = 0; i < step.sequences.size(); ++i) {
    const StepSequence& s = step.sequences[i];
    StepResult::Sequence& result = output.result.sequences[i];
    result.seq = s.seq;
    result.logits = {};
    if (s.sampler == nullptr) result.sampled.reset();
    result.n_outputs = s.sampler != nullptr || s.outputs == Outputs::last ? 1
                       : s.outputs == Outputs::all                        ? static_cast<int>(s.tokens.size())
                                                                          : 0;
    if (s.sampler == nullptr) rows += static_cast<std::size_t>(result.n_outputs);
  }
  output.logits.resize(rows * n_vocab);
  next_logits_.clear();
  float* next = output.logits.data();
  for (std::size_t i = 0; i < step.sequences.size(); ++i) {
    StepResult::Sequence& result = output.result.sequences[i];
    const bool wanted = step.sequences[i].sampler == nullptr && result.n_outputs > 0;
    next_logits_.push_back(wanted ? next : nullptr);
    if (!wanted) continue;
    result.logits = {next, static_cast<std::size_t>(result.n_outputs) * n_vocab};
    next += result.logits.size();
  }
}

/// Adds one run of tokens to the ubatch; returns their number.
int StepRunner::add_part(const StepSequence& sequence, const Part& part) {
  const int offset = offset_in_step(sequence, part);
  std::int32_t* tokens = ports().tokens() + part.first_row;
  std::int32_t* positions = ports().positions() + part.first_row;
  for (int i = 0; i < part.n_rows; ++i) {
    const int at = offset + i;
    tokens[i] = sequence.tokens[static_cast<std::size_t>(at)];
    positions[i] = part.first_cell + i;
  }
  const std::span<const float> scales = scales_of(sequence);
  for (std::size_t k = 0; k < scales.size(); ++k) {
    std::fill_n(ports().adapter_scales(static_cast<int>(k)) + part.first_row, part.n_rows, scales[k]);
    if (scales[k] != 0.0f) adapters_ |= AdapterSet{1} << k;
  }
  parts_.push_back(part);
  n_tokens_ += part.n_rows;
  if (params_.embeddings) return part.n_rows;
  const bool last = offset + part.n_rows == static_cast<int>(sequence.tokens.size());
  const auto index = static_cast<std::size_t>(part.sequence);
  const auto add_output = [&](int row) {
    Output output{row, part.sequence, next_logits_[index], sequence.sampler};
    if (output.logits != nullptr) next_logits_[index] += model_.hparams().n_vocab;
    outputs_.push_back(output);
  };
  if (sequence.sampler == nullptr && sequence.outputs == Outputs::all)
    for (int i = 0; i < part.n_rows; ++i) add_output(part.first_row + i);
  else if (last && (sequence.sampler != nullptr || sequence.outputs == Outputs::last))
    add_output(part.first_row + part.n_rows - 1);
  return part.n_rows;
}

void StepRunner::fill_spans(const Step& step) {
  for (int g = 0; g < cache_.n_groups(); ++g) {
    const GroupId group(g);
    ggml::AttnSpan* span = ports().spans(group);
    std::int32_t* table = ports().block_table(group);
    std::int32_t offset = 0;
    for (const Part& part : parts_) {
      const SeqId seq = step.sequences[static_cast<std::size_t>(part.sequence)].seq;
      const BlockTable& blocks = cache_.group(group).table(seq);
      *span++ = {part.first_row, part.n_rows, part.first_cell, offset, blocks.first_block, -1, -1, -1};
      const auto end = static_cast<std::size_t>((part.first_cell + part.n_rows - 1) / kKvBlockTokens) + 1;
      for (auto i = static_cast<std::size_t>(blocks.first_block); i < end; ++i) table[offset++] = blocks.blocks[i];
    }
  }
  const StateCache* states = cache_.states();
  if (states == nullptr) return;
  ggml::AttnSpan* span = ports().spans(GroupId(cache_.n_groups()));
  for (const Part& part : parts_) {
    const StepSequence& s = step.sequences[static_cast<std::size_t>(part.sequence)];
    const int offset = offset_in_step(s, part);
    const StateCache::Slots slots =
        states->slots(s.seq, offset == 0, offset + part.n_rows == static_cast<int>(s.tokens.size()));
    *span++ = {part.first_row, part.n_rows, part.first_cell, 0, 0, slots.from, slots.to, slots.before_last};
  }
}

/// Sizes the result: one embedding for each sequence, or for each of its tokens.
void StepRunner::prepare_embeddings(const Step& step, StepOutput& output) {
  const auto n_embd = static_cast<std::size_t>(model_.hparams().n_embd);
  const bool each_token = params_.pooling == Pooling::none;
  std::size_t rows = 0;
  for (std::size_t i = 0; i < step.sequences.size(); ++i) {
    const StepSequence& s = step.sequences[i];
    StepResult::Sequence& result = output.result.sequences[i];
    result.seq = s.seq;
    result.logits = {};
    result.n_outputs = 0;
    result.sampled.reset();
    result.n_embeddings = s.outputs == Outputs::none ? 0 : each_token ? static_cast<int>(s.tokens.size()) : 1;
    rows += static_cast<std::size_t>(result.n_embeddings);
  }
  output.embeddings.assign(rows * n_embd, 0.0f);
  embeddings_.clear();
  float* next = output.embeddings.data();
  for (StepResult::Sequence& result : output.result.sequences) {
    const std::size_t n = static_cast<std::size_t>(result.n_embeddings) * n_embd;
    embeddings_.push_back(n > 0 ? next : nullptr);
    result.embeddings = {next, n};
    next += n;
  }
}

/// The ubatch's embeddings to where their sequences have them. A sequence's parts of several ubatches become one.
void StepRunner::run_embeddings(const Step& step, int bucket, const ggml::StopToken& stop) {
  const auto n_parts = static_cast<int>(parts_.size());
  programs_.run({.segment = segments_.head(), .token_bucket = bucket, .output_bucket = 0, .ports = set_},
                {n_tokens_, n_parts, n_parts}, stop);
  programs_.synchronise();
  const auto n_embd = static_cast<std::size_t>(model_.hparams().n_embd);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    float* to = embeddings_[static_cast<std::size_t>(part.sequence)];
    if (to == nullptr) continue;
    const StepSequence& s = step.sequences[static_cast<std::size_t>(part.sequence)];
    const int offset = offset_in_step(s, part);
    if (params_.pooling == Pooling::none) {
      const std::size_t n = static_cast<std::size_t>(part.n_rows) * n_embd;
      const float* from = ports().embeddings() + static_cast<std::size_t>(part.first_row) * n_embd;
      check_numbers({from, n}, "embeddings");
      std::memcpy(to + static_cast<std::size_t>(offset) * n_embd, from, n * sizeof(float));
      continue;
    }
    const float* from = ports().embeddings() + i * n_embd;
    check_numbers({from, n_embd}, "embeddings");
    const bool is_first = offset == 0, is_last = offset + part.n_rows == static_cast<int>(s.tokens.size());
    float share = static_cast<float>(part.n_rows) / static_cast<float>(s.tokens.size());
    if (params_.pooling != Pooling::mean) share = (params_.pooling == Pooling::cls ? is_first : is_last) ? 1.0f : 0.0f;
    for (std::size_t k = 0; k < n_embd; ++k) to[k] += share * from[k];
  }
}

void StepRunner::run_ubatch(const Step& step, const ggml::StopToken& stop, StepOutput& output) {
  fill_spans(step);
  const int n_outputs = static_cast<int>(outputs_.size());
  const int bucket = bucket_for(n_tokens_, params_.n_ubatch);
  // Where few rows have outputs, the last feed-forward is for those only.
  const bool trimmed = !params_.embeddings && n_tokens_ > 1 && 2 * n_outputs <= n_tokens_;
  if (trimmed)
    for (int i = 0; i < n_outputs; ++i) ports().output_rows()[i] = outputs_[static_cast<std::size_t>(i)].row;
  for (int segment = 0; segment < segments_.head(); ++segment) {
    check_stop(stop);
    const bool trims = trimmed && segment == segments_.last_run();
    const int output_bucket = trims ? bucket_for(std::max(n_outputs, 1), params_.n_ubatch) : 0;
    const ggml::StepCounts counts{n_tokens_, trims ? n_outputs : 0, static_cast<int>(parts_.size())};
    programs_.run({.segment = segment,
                   .token_bucket = bucket,
                   .output_bucket = output_bucket,
                   .ports = set_,
                   .adapters = adapters_ & segments_.adapters_in(segment)},
                  counts, stop);
  }
  if (params_.embeddings) run_embeddings(step, bucket, stop);
  const std::span<const Output> all(outputs_);
  const auto head_rows = static_cast<std::size_t>(ports().sizes().max_head_rows);
  for (std::size_t begin = 0; begin < all.size(); begin += head_rows) {
    check_stop(stop);
    // A trimmed stream holds the outputs in order; the head finds them by that number.
    if (trimmed)
      for (std::size_t i = begin; i < all.size(); ++i) outputs_[i].row = static_cast<int>(i);
    run_head(step, all.subspan(begin, std::min(head_rows, all.size() - begin)), stop, output);
  }
  if (all.empty() && sets_.size() > 1)
    programs_.mark(set_);
  else if (all.empty())
    programs_.synchronise();
  count_bytes();
}

void StepRunner::run_head(const Step& step, std::span<const Output> outputs, const ggml::StopToken& stop,
                          StepOutput& output) {
  const int n = static_cast<int>(outputs.size());
  for (int i = 0; i < n; ++i) {
    const Output& row = outputs[static_cast<std::size_t>(i)];
    ports().head_rows()[i] = row.row;
    const std::span<const float> scales = scales_of(step.sequences[static_cast<std::size_t>(row.sequence)]);
    for (std::size_t k = 0; k < scales.size(); ++k) ports().adapter_head_scales(static_cast<int>(k))[i] = scales[k];
  }
  const bool sample = prepare_samplers(outputs);
  const ggml::StepCounts counts{1, n, 0};  // its graph has rows of outputs only
  programs_.run({.segment = segments_.head(),
                 .token_bucket = 0,
                 .output_bucket = bucket_for(n, ports().sizes().max_head_rows),
                 .sample = sample,
                 .ports = set_,
                 .adapters = adapters_ & segments_.adapters_in(segments_.head())},
                counts, stop);
  programs_.synchronise();
  store(outputs, output);
}

/// Fills the rows of the sample op; false when no output wants a token from it.
bool StepRunner::prepare_samplers(std::span<const Output> outputs) {
  bool any = false;
  adjust_.clear();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    ggml::SampleRow& row = ports().sample_rows()[i];
    row = {};
    row.logits_row = -1;
    row.mask_row = -1;
    Sampler* sampler = outputs[i].sampler;
    if (sampler == nullptr) continue;
    const std::size_t begin = adjust_.size();
    sampler->prepare(row, adjust_);
    // Rows without a device form wait until the logits are here.
    row.logits_row = sampler->on_host() ? -1 : static_cast<std::int32_t>(i);
    any |= !sampler->on_host();
    row.adjust_begin = static_cast<std::int32_t>(begin);
    row.adjust_end = static_cast<std::int32_t>(adjust_.size());
    row.mask_row = -1;
    const auto words = static_cast<std::size_t>(ports().mask_words());
    if (sampler->fill_mask({ports().masks() + i * words, words}, std::span(adjust_).subspan(begin)))
      row.mask_row = static_cast<std::int32_t>(i);
  }
  if (adjust_.size() > ports().sizes().adjust_entries) {
    programs_.synchronise();
    for (const std::unique_ptr<StepPorts>& set : sets_) set->grow_adjust(2 * adjust_.size());
    programs_.clear();
  }
  if (!adjust_.empty()) std::memcpy(ports().adjust(), adjust_.data(), adjust_.size() * sizeof(ggml::SampleAdjust));
  return any;
}

void StepRunner::sample_on_host(std::size_t output, Sampler& sampler) {
  const ggml::SampleRow& row = ports().sample_rows()[output];
  const auto n_vocab = static_cast<std::size_t>(model_.hparams().n_vocab);
  const auto words = static_cast<std::size_t>(ports().mask_words());
  const auto begin = static_cast<std::size_t>(row.adjust_begin), end = static_cast<std::size_t>(row.adjust_end);
  std::span<const std::uint32_t> allowed;
  if (row.mask_row >= 0) allowed = {ports().masks() + static_cast<std::size_t>(row.mask_row) * words, words};
  host_result_ =
      sampler.sample_on_host(row, {ports().logits() + output * n_vocab, n_vocab},
                             std::span<const ggml::SampleAdjust>(adjust_).subspan(begin, end - begin), allowed);
}

void StepRunner::store(std::span<const Output> outputs, StepOutput& output) {
  const auto n_vocab = static_cast<std::size_t>(model_.hparams().n_vocab);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::span<const float> logits(ports().logits() + i * n_vocab, n_vocab);
    outputs[i].logits != nullptr ? copy_numbers(logits, outputs[i].logits, "logits") : check_numbers(logits, "logits");
    if (outputs[i].sampler == nullptr) continue;
    const bool on_host = outputs[i].sampler->on_host();
    if (on_host) sample_on_host(i, *outputs[i].sampler);
    const ggml::SampleResult& sampled = on_host ? host_result_ : ports().sampled()[i];
    outputs[i].sampler->collect(sampled);
    std::optional<SampledToken>& to = output.result.sequences[static_cast<std::size_t>(outputs[i].sequence)].sampled;
    if (!to) to.emplace();
    to->token = sampled.token;
    to->logprob = sampled.logprob;
    to->top.clear();
    for (std::int32_t k = 0; k < sampled.n_probs; ++k) to->top.push_back({sampled.ids[k], sampled.logprobs[k]});
  }
}

void StepRunner::count_bytes() {
  const ExpertHparams& experts = model_.hparams().experts;
  weight_bytes_ += dense_bytes_ + (outputs_.empty() ? 0.0 : head_bytes_);
  for (std::size_t k = 0; k < adapter_bytes_.size(); ++k)
    if ((adapters_ >> k & 1u) != 0) weight_bytes_ += adapter_bytes_[k];
  if (cache_.states() != nullptr)
    kv_bytes_ += static_cast<double>(cache_.states()->state_bytes()) * static_cast<double>(parts_.size());
  if (experts.count > 0)
    weight_bytes_ += expert_bytes_ * std::min(1.0, static_cast<double>(n_tokens_) * experts.used / experts.count);
  for (int g = 0; g < cache_.n_groups(); ++g) {
    const KvGroupSpec& spec = cache_.group(GroupId(g)).spec();
    const double cell_bytes = static_cast<double>(spec.layout.block_bytes() * spec.layers.size()) / kKvBlockTokens;
    for (const Part& part : parts_) {
      const int cells = part.first_cell + part.n_rows;
      const int seen = spec.kind == KvKind::window ? std::min(cells, spec.window + part.n_rows - 1) : cells;
      kv_bytes_ += cell_bytes * seen;
    }
  }
}

}  // namespace llama
