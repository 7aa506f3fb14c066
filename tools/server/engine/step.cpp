// One step of the loop: which rows it computes, and what their results mean for their slots.
#include <algorithm>
#include <utility>

#include "common/log/timings.h"
#include "engine/engine.h"
#include "engine/rows.h"
#include "ggml/log.h"
#include "llama/vocab.h"

namespace server {

using ggml::Error;
using ggml::ErrorCode;

bool Engine::step() {
  Rows& rows = *rows_;
  plan_rows(rows);
  if (rows.sequences.empty()) return rows.n_unread == 0;
  run_rows(rows);
  return true;
}

void Engine::run_rows(Rows& rows) {
  const llama::StepResult* result = nullptr;
  try {
    result = &compute(rows);
    take_results(rows, *result);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled)
      return;  // everybody it was for has left; drop_cancelled() frees the slots
    if (result == nullptr && rows.slots.size() > 1) {
      run_each_alone(rows);
      return;
    }
    // Only the requests of this step fail; the sequences are as they were before it.
    for (Slot* slot : rows.slots) {
      if (slot->state != SlotState::idle) fail(*slot, error);
    }
  }
}

/// After a step without a result: one request may be to blame, with a scale of an adapter that makes its numbers
/// overflow. Then only that one fails.
void Engine::run_each_alone(Rows& rows) {
  const std::vector<llama::StepSequence> sequences = rows.sequences;
  const std::vector<Slot*> slots = rows.slots;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    rows.sequences.assign(1, sequences[i]);
    rows.slots.assign(1, slots[i]);
    rows.n_tokens = static_cast<int>(sequences[i].tokens.size());
    rows.n_decode = slots[i]->state == SlotState::generate ? 1 : 0;
    run_rows(rows);
  }
}

void Engine::plan_rows(Rows& rows) {
  rows.sequences.clear();
  rows.slots.clear();
  rows.n_tokens = 0;
  rows.n_decode = 0;
  rows.n_unread = 0;
  for (Slot& slot : slots_) {
    if (slot.state != SlotState::generate) continue;
    if (slot.reply.full()) {
      ++rows.n_unread;
      continue;
    }
    if (!make_room(slot)) continue;
    if (rows.n_tokens == context_.params().n_batch) break;
    rows.sequences.push_back(
        {slot.seq, {&slot.next, 1}, llama::Outputs::last, slot.sampler.get(), slot.adapter_scales});
    rows.slots.push_back(&slot);
    ++rows.n_tokens;
    ++rows.n_decode;
  }
  if (rows.n_decode > 0 && !params_.continuous_batching) return;
  // While answers are running, a step takes one micro-batch of prompt at most, so that no stream waits for a whole long
  // prompt.
  const int limit =
      rows.n_decode > 0 ? std::min(context_.params().n_ubatch, context_.params().n_batch) : context_.params().n_batch;
  for (Slot& slot : slots_) {
    if (slot.state != SlotState::prompt || rows.n_tokens >= limit) continue;
    const int n = std::min(slot.n_prompt - slot.n_prompt_done, limit - rows.n_tokens);
    while (!context_.can_append(slot.seq, n) && free_idle_cache()) {
    }
    if (!context_.can_append(slot.seq, n)) {
      if (rows.n_decode == 0 && rows.n_unread == 0)
        fail(slot,
             Error(ErrorCode::exceeds_limit, "Context size has been exceeded.", "start the server with a larger -c"));
      continue;  // running answers will end and free their cache
    }
    const bool last = slot.n_prompt_done + n == slot.n_prompt;
    const bool sample = last && slot.request.n_predict != 0;
    const std::span<const Token> chunk(slot.request.prompt.data() + slot.n_prompt_done, static_cast<std::size_t>(n));
    rows.sequences.push_back({slot.seq, chunk, sample ? llama::Outputs::last : llama::Outputs::none,
                              sample ? slot.sampler.get() : nullptr, slot.adapter_scales});
    rows.slots.push_back(&slot);
    rows.n_tokens += n;
  }
}

const llama::StepResult& Engine::compute(const Rows& rows) {
  const ggml::StopToken stop{[](void* self) {
                               const auto* engine = static_cast<const Engine*>(self);
                               if (engine->abort_step_.load(std::memory_order_relaxed)) return true;
                               const std::vector<Slot*>& slots = engine->rows_->slots;
                               return std::all_of(slots.begin(), slots.end(),
                                                  [](const Slot* s) { return s->reply.cancelled(); });
                             },
                             this};
  return context_.run({rows.sequences}, stop);
}

void Engine::take_results(const Rows& rows, const llama::StepResult& result) {
  ++metrics_.n_decode;
  metrics_.n_busy_slots += rows.slots.size();
  metrics_.n_decode_rows += static_cast<std::uint64_t>(rows.n_decode);
  for (std::size_t i = 0; i < rows.slots.size(); ++i) {
    Slot& slot = *rows.slots[i];
    const llama::StepSequence& asked = rows.sequences[i];
    slot.tokens.insert(slot.tokens.end(), asked.tokens.begin(), asked.tokens.end());
    if (slot.state == SlotState::prompt) {
      after_prompt(slot, static_cast<int>(asked.tokens.size()), result.sequences[i]);
    } else {
      after_token(slot, *result.sequences[i].sampled);
    }
  }
}

void Engine::after_prompt(Slot& slot, int n_tokens, const llama::StepResult::Sequence& result) {
  slot.n_prompt_done += n_tokens;
  slot.timings.prompt_n += n_tokens;
  slot.timings.prompt_ms = now_ms() - slot.prompt_start_ms;
  if (slot.request.report_progress) {
    slot.reply.push(
        ProgressEvent{slot.id, slot.n_prompt, slot.timings.cache_n, slot.n_prompt_done, slot.timings.prompt_ms});
  }
  if (slot.n_prompt_done < slot.n_prompt) return;
  slot.generate_start_ms = now_ms();
  slot.state = SlotState::generate;
  release_children(slot);
  if (slot.request.n_predict == 0) {
    finish(slot, StopType::limit, {});
    return;
  }
  after_token(slot, *result.sampled);
}

void Engine::after_token(Slot& slot, const llama::SampledToken& sampled) {
  const llama::Vocab& vocab = context_.model().vocab();
  if (sampled.token == llama::kNoToken) {
    const std::string reason = slot.mask ? slot.mask->failure() : std::string();
    // What the request asked for has led into a place without a way on: its fault, and nobody else's.
    const int n = slot.timings.predicted_n;
    fail(slot,
         Error(ErrorCode::invalid_argument, reason.empty() ? "the biases of the request leave no token to choose"
                                                           : ggml::strf("the answer cannot go on after %d token%s: %s",
                                                                        n, n == 1 ? "" : "s", reason.c_str())));
    return;
  }
  ++slot.timings.predicted_n;
  slot.timings.predicted_ms = now_ms() - slot.generate_start_ms;
  slot.timings.n_past = static_cast<int>(slot.tokens.size());
  slot.next = sampled.token;
  slot.sampler->accept(sampled.token);

  const bool end = vocab.is_eog(sampled.token);
  const std::vector<Token>& shown = slot.request.shown_tokens;
  const bool show = slot.request.show_special || std::binary_search(shown.begin(), shown.end(), sampled.token);
  const auto special = show ? llama::SpecialText::show : llama::SpecialText::hide;
  TextStream::Outcome outcome =
      slot.text->push(end && !slot.request.show_special ? std::string_view() : vocab.piece(sampled.token, special));

  // In this order; a later reason overrides the name of an earlier one.
  StopType stop = StopType::none;
  if (!outcome.stopping_word.empty()) stop = StopType::word;
  const bool full = static_cast<int>(slot.tokens.size()) + 1 >= params_.n_ctx_slot;
  if (full && !params_.context_shift) {
    slot.truncated = true;
    stop = StopType::limit;
  }
  const int budget = slot.request.n_predict >= 0 ? slot.request.n_predict : params_.n_predict;
  if (budget >= 0 && slot.timings.predicted_n >= budget) stop = StopType::limit;
  if (slot.request.n_indent > 0) {
    const int indentation = slot.text->indentation();
    if (indentation >= 0 && indentation < slot.request.n_indent) stop = StopType::limit;
  }
  if (slot.request.t_max_predict_ms > 0 && outcome.text.find('\n') != std::string::npos &&
      slot.timings.predicted_ms > static_cast<double>(slot.request.t_max_predict_ms)) {
    stop = StopType::limit;
  }
  if (end) stop = StopType::eos;

  std::string word = std::move(outcome.stopping_word);
  slot.reply.push(
      TokenEvent{std::move(outcome.text), sampled.token, sampled, slot.id, slot.timings, outcome.incomplete_character});
  if (stop != StopType::none) finish(slot, stop, stop == StopType::word ? std::move(word) : std::string());
}

bool Engine::make_room(Slot& slot) {
  const int n_past = static_cast<int>(slot.tokens.size());
  if (params_.context_shift && n_past + 1 >= params_.n_ctx_slot) {
    const int bos = context_.model().vocab().add_bos() ? 1 : 0;
    int keep = (slot.request.n_keep < 0 ? slot.n_prompt : slot.request.n_keep) + bos;
    keep = std::clamp(keep, 0, params_.n_ctx_slot - 4);
    const int left = n_past - keep;
    const int discard =
        std::clamp(slot.request.n_discard > 0 ? slot.request.n_discard : left / 2, 1, std::max(1, left - 1));
    try {
      context_.shift(slot.seq, keep, discard);
    } catch (const Error& error) {
      fail(slot, error);
      return false;
    }
    const auto first = slot.tokens.begin() + keep;
    slot.tokens.erase(first, first + discard);
    slot.truncated = true;
  }
  while (!context_.can_append(slot.seq, 1)) {
    if (free_idle_cache()) continue;
    fail(slot, Error(ErrorCode::exceeds_limit, "Context size has been exceeded.", "start the server with a larger -c"));
    return false;
  }
  return true;
}

bool Engine::free_idle_cache() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.state != SlotState::idle || slot.tokens.empty()) continue;
    if (oldest == nullptr || slot.last_used < oldest->last_used) oldest = &slot;
  }
  if (oldest == nullptr) return false;
  reset_cache(*oldest);
  return true;
}

std::size_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  const std::size_t n = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first - a.begin());
}

SlotStatus slot_status(const Slot& slot) {
  SlotStatus status;
  status.id = slot.id;
  status.processing = slot.state != SlotState::idle;
  status.ever_used = slot.ever_used;
  status.task = slot.task;
  status.n_prompt = slot.n_prompt;
  status.n_prompt_processed = slot.timings.prompt_n;
  status.n_prompt_cache = slot.timings.cache_n;
  status.n_decoded = slot.timings.predicted_n;
  if (slot.request.n_predict >= 0) status.n_remain = std::max(0, slot.request.n_predict - slot.timings.predicted_n);
  status.has_new_line = slot.text.has_value() && slot.text->has_new_line();
  status.request = slot.request;
  status.request.prompt.clear();
  return status;
}

void log_timings(const Slot& slot, const llama::ContextStats& stats) {
  const Timings& t = slot.timings;
  for (const std::string& line :
       common::timing_lines({t.prompt_ms, t.predicted_ms, t.prompt_n, t.predicted_n}, "tokens")) {
    ggml::logf(ggml::LogLevel::info, "slot %d: task %llu: %s", slot.id, static_cast<unsigned long long>(slot.task),
               line.c_str());
  }
  ggml::logf(ggml::LogLevel::info, "slot %d: task %llu:    graphs reused = %10llu", slot.id,
             static_cast<unsigned long long>(slot.task),
             static_cast<unsigned long long>(stats.steps > stats.graph_builds ? stats.steps - stats.graph_builds : 0));
}

}  // namespace server
