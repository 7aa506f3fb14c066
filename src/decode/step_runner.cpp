#include "decode/step_runner.h"

#include <algorithm>
#include <bit>
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

/// Whether any value is no number, by its bits: comparisons of floats may trap, so compilers leave them one by one.
bool any_nan(std::span<const float> values) {
  constexpr std::int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  std::int32_t bad = 0;
  for (const float v : values) bad |= (std::bit_cast<std::int32_t>(v) & kMagnitude) > kInfinity ? 1 : 0;
  return bad != 0;
}

/// Ends the step instead of the process when a model's arithmetic has failed.
void check_numbers(std::span<const float> values, const char* what) {
  if (any_nan(values)) fail_numbers(what);
}

/// The same while the values are copied: a card has just written them past the processor's caches. Each piece is looked
/// at where it has arrived.
void copy_numbers(std::span<const float> values, float* to, const char* what) {
  constexpr std::size_t kPiece = 4096;
  for (; !values.empty(); values = values.subspan(std::min(kPiece, values.size()))) {
    const std::size_t n = std::min(kPiece, values.size());
    std::memcpy(to, values.data(), n * sizeof(float));
    check_numbers({to, n}, what);
    to += n;
  }
}

void check_stop(const ggml::StopToken& stop) {
  if (stop.stop != nullptr && stop.stop(stop.user)) throw Error(ErrorCode::cancelled, "the step was cancelled");
}

}  // namespace

StepRunner::StepRunner(const Model& model, const ContextParams& params, const KvCache& cache,
                       const StepMachinery& machinery)
    : model_(model),
      params_(params),
      cache_(cache),
      sets_(machinery.ports),
      programs_(machinery.programs),
      segments_(machinery.segments),
      offload_(machinery.offload),
      homes_(machinery.homes),
      streamed_(machinery.streamed) {
  const auto n_seq = static_cast<std::size_t>(params.n_seq_max);
  if (offload_.top() > 0 && params.n_batch > params.n_ubatch)
    kept_ = KeptStreams(machinery.homes, stream_bytes(params.n_ubatch),
                        (params.n_batch + params.n_ubatch - 1) / params.n_ubatch);
  now_.parts.reserve(n_seq);
  next_logits_.reserve(n_seq);
  embeddings_.reserve(n_seq);
  now_.outputs.reserve(static_cast<std::size_t>(params.n_ubatch));
  known_adapter_sets_.reserve(kMaxAdapterSets);
  adjust_.reserve(sets_.front()->sizes().adjust_entries);
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
  int n_tokens = 0;
  for (const StepSequence& s : step.sequences) n_tokens += static_cast<int>(s.tokens.size());
  by_layer_ = offload_.level(n_tokens, std::min(n_tokens, params_.n_ubatch)) > 0;
  if (by_layer_) return run_by_layer(step, first_cells, stop, output);
  set_ = 0;  // of a step that is one ubatch, so that its programs are compiled once
  bool first = true;
  for (Cursor cursor; cursor.sequence < step.sequences.size(); first = false) {
    if (!first && sets_.size() > 1) {
      set_ = 1 - set_;
      programs_.wait_for(set_);
    }
    take_ubatch(step, first_cells, cursor);
    fill_ports(step);
    run_ubatch(step, stop, output);
  }
  if (sets_.size() > 1) programs_.synchronise();
}

/// Cuts the next ubatch off a step.
void StepRunner::take_ubatch(const Step& step, std::span<const int> first_cells, Cursor& cursor) {
  now_.n_tokens = 0;
  now_.adapters = 0;
  now_.offload = 0;
  now_.parts.clear();
  now_.outputs.clear();
  while (cursor.sequence < step.sequences.size() && now_.n_tokens < params_.n_ubatch) {
    const StepSequence& s = step.sequences[cursor.sequence];
    const int left = static_cast<int>(s.tokens.size()) - cursor.done;
    // An encoder's tokens see each other: they stay together.
    if (model_.hparams().is_encoder && left > params_.n_ubatch - now_.n_tokens && now_.n_tokens > 0) break;
    const Part part{static_cast<int>(cursor.sequence), now_.n_tokens, std::min(left, params_.n_ubatch - now_.n_tokens),
                    first_cells[cursor.sequence] + cursor.done};
    cursor.done += add_part(s, part);
    if (cursor.done == static_cast<int>(s.tokens.size())) {
      ++cursor.sequence;
      cursor.done = 0;
    }
  }
  now_.adapters = adapters_to_apply(now_.adapters);
}

/// Cuts all of a step into `batch_`; returns its tokens.
std::size_t StepRunner::cut_step(const Step& step, std::span<const int> first_cells) {
  n_batch_ = 0;
  std::size_t n_tokens = 0, n_outputs = 0;
  for (Cursor cursor; cursor.sequence < step.sequences.size(); ++n_batch_) {
    take_ubatch(step, first_cells, cursor);
    n_outputs += now_.outputs.size();
    n_tokens += static_cast<std::size_t>(now_.n_tokens);
    if (batch_.size() == n_batch_) batch_.emplace_back();
    std::swap(now_, batch_[n_batch_]);
  }
  few_outputs_ = !params_.embeddings && 2 * n_outputs <= n_tokens;
  for (std::size_t i = 0; i < n_batch_; ++i)
    batch_[i].offload = offload_.level(static_cast<int>(n_tokens), batch_[i].n_tokens);
  return n_tokens;
}

void StepRunner::run_by_layer(const Step& step, std::span<const int> first_cells, const ggml::StopToken& stop,
                              StepOutput& output) {
  streamed_.pin(offload_);
  whole_ = offload_.sends_whole(static_cast<int>(cut_step(step, first_cells)));
  set_ = 0;
  const int head = segments_.head(true);
  const auto send_ahead = [&](int segment) {
    if (segment >= head) return;
    std::swap(now_, batch_.front());
    set_ = 0;
    programs_.send_ahead(key_of(segment));
    std::swap(now_, batch_.front());
  };
  for (int segment = 0; segment < head; ++segment) {
    // While a layer is computed the weights of the next one arrive.
    send_ahead(segment + 1);
    for (std::size_t i = 0; i < n_batch_; ++i) {
      check_stop(stop);
      enter(step, i, segment - 1);
      run_segment(segment, stop);
      leave(i, segment);
    }
  }
  for (std::size_t i = 0; i < n_batch_; ++i) {
    enter(step, i, head - 1);
    run_outputs(step, stop, output);
    leave(i, -1);
  }
  programs_.synchronise();
}

/// Makes a ubatch the present one, with its stream in front of `border`; -1: it has none yet.
void StepRunner::enter(const Step& step, std::size_t ubatch, int border) {
  const bool is_first = border < 0;
  std::swap(now_, batch_[ubatch]);
  // The only one finds everything as it left it.
  if (n_batch_ == 1 && !is_first) return;
  set_ = sets_.size() > 1 ? static_cast<int>(ubatch % sets_.size()) : 0;
  if (sets_.size() > 1)
    programs_.wait_for(set_);
  else
    programs_.synchronise();
  fill_ports(step);
  if (is_first) return;
  const StepPorts::Stream& stream = ports().layer_stream(border);
  programs_.move(stream.home, stream.data, kept_.at(stream.home, ubatch), stream_bytes(now_.n_tokens));
}

/// Puts its stream behind `border` aside; -1: it is not needed any more.
void StepRunner::leave(std::size_t ubatch, int border) {
  if (n_batch_ > 1 && border >= 0) {
    const StepPorts::Stream& stream = ports().layer_stream(border);
    programs_.move(stream.home, kept_.at(stream.home, ubatch), stream.data, stream_bytes(now_.n_tokens));
  }
  if (n_batch_ > 1 && sets_.size() > 1) programs_.mark(set_);
  std::swap(now_, batch_[ubatch]);
}

/// Bytes of that many rows of the residual stream.
std::size_t StepRunner::stream_bytes(int n_rows) const {
  return static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(model_.hparams().n_embd) * sizeof(float);
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
  const std::span<const float> scales = scales_of(sequence);
  for (std::size_t k = 0; k < scales.size(); ++k)
    if (scales[k] != 0.0f) now_.adapters |= AdapterSet{1} << k;
  now_.parts.push_back(part);
  now_.n_tokens += part.n_rows;
  if (params_.embeddings) return part.n_rows;
  const bool last = offset + part.n_rows == static_cast<int>(sequence.tokens.size());
  const auto index = static_cast<std::size_t>(part.sequence);
  const auto add_output = [&](int row) {
    Output output{row, part.sequence, next_logits_[index], sequence.sampler};
    if (output.logits != nullptr) next_logits_[index] += model_.hparams().n_vocab;
    now_.outputs.push_back(output);
  };
  if (sequence.sampler == nullptr && sequence.outputs == Outputs::all)
    for (int i = 0; i < part.n_rows; ++i) add_output(part.first_row + i);
  else if (last && (sequence.sampler != nullptr || sequence.outputs == Outputs::last))
    add_output(part.first_row + part.n_rows - 1);
  return part.n_rows;
}

/// Writes what the devices read of the present ubatch.
void StepRunner::fill_ports(const Step& step) {
  for (const Part& part : now_.parts) fill_tokens(step.sequences[static_cast<std::size_t>(part.sequence)], part);
  fill_spans(step);
  if (!is_trimmed()) return;
  for (std::size_t i = 0; i < now_.outputs.size(); ++i) ports().output_rows()[i] = now_.outputs[i].row;
}

void StepRunner::fill_tokens(const StepSequence& sequence, const Part& part) {
  const int offset = offset_in_step(sequence, part);
  std::int32_t* tokens = ports().tokens() + part.first_row;
  std::int32_t* positions = ports().positions() + part.first_row;
  for (int i = 0; i < part.n_rows; ++i) {
    const int at = offset + i;
    tokens[i] = sequence.tokens[static_cast<std::size_t>(at)];
    positions[i] = part.first_cell + i;
  }
  const std::span<const float> scales = scales_of(sequence);
  for (std::size_t k = 0; k < scales.size(); ++k)
    std::fill_n(ports().adapter_scales(static_cast<int>(k)) + part.first_row, part.n_rows, scales[k]);
}

void StepRunner::fill_spans(const Step& step) {
  for (int g = 0; g < cache_.n_groups(); ++g) {
    const GroupId group(g);
    ggml::AttnSpan* span = ports().spans(group);
    std::int32_t* table = ports().block_table(group);
    std::int32_t offset = 0;
    for (const Part& part : now_.parts) {
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
  for (const Part& part : now_.parts) {
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
void StepRunner::run_embeddings(const Step& step, const ggml::StopToken& stop) {
  const auto n_parts = static_cast<int>(now_.parts.size());
  programs_.run(key_of(segments_.head(by_layer_)), {now_.n_tokens, n_parts, n_parts}, stop);
  programs_.synchronise();
  const auto n_embd = static_cast<std::size_t>(model_.hparams().n_embd);
  for (std::size_t i = 0; i < now_.parts.size(); ++i) {
    const Part& part = now_.parts[i];
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

/// Where few rows have outputs, the last feed-forward is for those only.
bool StepRunner::is_trimmed() const {
  return !params_.embeddings && now_.n_tokens > 1 && 2 * now_.outputs.size() <= static_cast<std::size_t>(now_.n_tokens);
}

/// The program of a segment for the present ubatch.
SegmentKey StepRunner::key_of(int segment) const {
  SegmentKey key;
  key.segment = segment;
  key.token_bucket = bucket_for(now_.n_tokens, params_.n_ubatch);
  if (is_trimmed() && segment == segments_.last_run(by_layer_))
    key.output_bucket = bucket_for(std::max(static_cast<int>(now_.outputs.size()), 1), params_.n_ubatch);
  key.ports = set_;
  key.adapters = now_.adapters & segments_.adapters_in(segment, by_layer_);
  key.by_layer = by_layer_;
  if (!by_layer_ || segment == 0 || segment > segments_.last_run(true)) return key;
  key.offload = now_.offload;
  key.whole = whole_;
  key.keeps_ffn = few_outputs_ && segment == segments_.last_run(true);
  return key;
}

void StepRunner::run_segment(int segment, const ggml::StopToken& stop) {
  const SegmentKey key = key_of(segment);
  const int n_outputs = key.output_bucket > 0 ? static_cast<int>(now_.outputs.size()) : 0;
  programs_.run(key, {now_.n_tokens, n_outputs, static_cast<int>(now_.parts.size())}, stop);
}

void StepRunner::run_ubatch(const Step& step, const ggml::StopToken& stop, StepOutput& output) {
  for (int segment = 0; segment < segments_.head(); ++segment) {
    check_stop(stop);
    run_segment(segment, stop);
  }
  run_outputs(step, stop, output);
  if (now_.outputs.empty() && sets_.size() > 1)
    programs_.mark(set_);
  else if (now_.outputs.empty())
    programs_.synchronise();
}

/// What comes behind the last layer.
void StepRunner::run_outputs(const Step& step, const ggml::StopToken& stop, StepOutput& output) {
  if (params_.embeddings) run_embeddings(step, stop);
  const bool trimmed = is_trimmed();
  const std::span<const Output> all(now_.outputs);
  const auto head_rows = static_cast<std::size_t>(ports().sizes().max_head_rows);
  for (std::size_t begin = 0; begin < all.size(); begin += head_rows) {
    check_stop(stop);
    // A trimmed stream holds the outputs in order; the head finds them by that number.
    if (trimmed)
      for (std::size_t i = begin; i < all.size(); ++i) now_.outputs[i].row = static_cast<int>(i);
    run_head(step, all.subspan(begin, std::min(head_rows, all.size() - begin)), stop, output);
  }
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
  SegmentKey key = key_of(segments_.head(by_layer_));
  key.token_bucket = 0;
  key.output_bucket = bucket_for(n, ports().sizes().max_head_rows);
  key.sample = sample;
  ggml::HostResults* results = programs_.host_results(key);
  const bool sent = send_logits(outputs, results, output);
  programs_.run(key, counts, stop);
  programs_.synchronise();
  const std::optional<bool> nan = results == nullptr ? std::nullopt : results->gave_nan();
  if (nan.value_or(false)) fail_numbers("logits");
  if (sent) return;
  store(outputs, nan.has_value(), output);
}

/// Lets a card write the only row of logits that a step wants to where it is handed out: for the processor it is a long
/// way to what a card has written.
bool StepRunner::send_logits(std::span<const Output> outputs, ggml::HostResults* results, StepOutput& output) {
  const auto n_vocab = static_cast<std::size_t>(model_.hparams().n_vocab);
  if (results == nullptr || !results->gave_nan().has_value() || outputs.size() != 1 || output.logits.size() != n_vocab)
    return false;
  if (outputs.front().logits == nullptr || outputs.front().sampler != nullptr) return false;
  if (output.card_logits == nullptr)
    output.card_logits = homes_.host().allocate(n_vocab * sizeof(float), ggml::BufferKind::host_pinned);
  if (!results->send_result(port::kLogits, output.card_logits->data())) return false;
  output.result.sequences[static_cast<std::size_t>(outputs.front().sequence)].logits = {
      reinterpret_cast<const float*>(output.card_logits->data()), n_vocab};
  return true;
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

/// `checked`: the logits are known to be numbers.
void StepRunner::store(std::span<const Output> outputs, bool checked, StepOutput& output) {
  const auto n_vocab = static_cast<std::size_t>(model_.hparams().n_vocab);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::span<const float> logits(ports().logits() + i * n_vocab, n_vocab);
    if (outputs[i].logits != nullptr) {
      copy_numbers(logits, outputs[i].logits, "logits");
    } else if (!checked) {
      check_numbers(logits, "logits");
    }
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
  weight_bytes_ += dense_bytes_ + (now_.outputs.empty() ? 0.0 : head_bytes_);
  for (std::size_t k = 0; k < adapter_bytes_.size(); ++k)
    if ((now_.adapters >> k & 1u) != 0) weight_bytes_ += adapter_bytes_[k];
  if (cache_.states() != nullptr)
    kv_bytes_ += static_cast<double>(cache_.states()->state_bytes()) * static_cast<double>(now_.parts.size());
  if (experts.count > 0)
    weight_bytes_ += expert_bytes_ * std::min(1.0, static_cast<double>(now_.n_tokens) * experts.used / experts.count);
  for (int g = 0; g < cache_.n_groups(); ++g) {
    const KvGroupSpec& spec = cache_.group(GroupId(g)).spec();
    const double cell_bytes = static_cast<double>(spec.layout.block_bytes() * spec.layers.size()) / kKvBlockTokens;
    for (const Part& part : now_.parts) {
      const int cells = part.first_cell + part.n_rows;
      const int seen = spec.kind == KvKind::window ? std::min(cells, spec.window + part.n_rows - 1) : cells;
      kv_bytes_ += cell_bytes * seen;
    }
  }
}

}  // namespace llama
