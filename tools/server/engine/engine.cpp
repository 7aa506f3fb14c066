#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "engine/rows.h"
#include "ggml/log.h"
#include "llama/vocab.h"

namespace server {
namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

constexpr auto kIdleWait = std::chrono::milliseconds(200);
constexpr auto kReaderWait =
    std::chrono::milliseconds(20);           // until readers that have fallen behind are looked at again
constexpr double kStatusIntervalMs = 100.0;  // a copy of the slots' state per token would cost more than it tells

}  // namespace

Engine::Engine(llama::Context& context, const EngineParams& params)
    : context_(context),
      params_(params),
      rows_(std::make_unique<Rows>()),
      erased_(static_cast<std::size_t>(params.n_slots), 0),
      adapter_scales_(params.adapter_scales) {
  slots_.resize(static_cast<std::size_t>(params.n_slots));
  for (int i = 0; i < params.n_slots; ++i) {
    slots_[static_cast<std::size_t>(i)].id = i;
    slots_[static_cast<std::size_t>(i)].seq = context_.create_sequence();
  }
  publish_status();
  thread_ = std::thread([this] { loop(); });
}

Engine::~Engine() {
  stop(std::chrono::milliseconds(0));
  if (thread_.joinable()) thread_.join();
}

void Engine::submit(GenerateRequest request, const std::shared_ptr<Mailbox>& mailbox, int first_answer) {
  if (request.slot >= params_.n_slots) {
    throw Error(ErrorCode::invalid_argument,
                strf("Field 'id_slot': %d, but the server has the slots 0 to %d", request.slot, params_.n_slots - 1));
  }
  if (request.n_completions < 1 || request.n_completions > params_.n_slots) {
    throw Error(
        ErrorCode::invalid_argument,
        strf("Field 'n': %d completions asked for, the server has %d slots", request.n_completions, params_.n_slots),
        "start the server with a larger -np");
  }
  const std::size_t n_prompt = std::max(request.prompt.size(), request.prompt_at_least);
  std::unique_lock lock(mutex_);
  if (stopping_) throw Error(ErrorCode::unavailable, "the server is shutting down");
  if (n_prompt < static_cast<std::size_t>(params_.n_ctx_slot)) {
    incoming_.push_back({next_task_++, std::move(request), mailbox, first_answer});
    lock.unlock();
    wake_.notify_one();
    return;
  }
  ++n_too_long_;
  lock.unlock();
  // At once and not when its turn comes: by then a stream's header may have gone out.
  const Error error(ErrorCode::exceeds_limit,
                    strf("request (%s%zu tokens) exceeds the available context size (%d tokens), try increasing it",
                         request.prompt_at_least > 0 ? "at least " : "", n_prompt, params_.n_ctx_slot),
                    "start the server with a larger -c, or a smaller -np");
  for (int i = 0; i < request.n_completions; ++i)
    mailbox->push(first_answer + i, ErrorEvent{error, static_cast<int>(n_prompt), params_.n_ctx_slot});
}

EngineStatus Engine::status() {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool Engine::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

std::vector<float> Engine::adapter_scales() {
  const std::lock_guard lock(mutex_);
  return adapter_scales_;
}

void Engine::set_adapter_scales(std::vector<float> scales) {
  const std::lock_guard lock(mutex_);
  adapter_scales_ = std::move(scales);
}

int Engine::erase_slot(int slot) {
  std::unique_lock lock(mutex_);
  if (stopping_) throw Error(ErrorCode::unavailable, "the server is shutting down");
  const auto index = static_cast<std::size_t>(slot);
  erased_[index] = -1;
  erase_requests_.push_back(slot);
  wake_.notify_one();
  idle_.wait(lock, [&] { return erased_[index] >= 0 || stopping_; });
  if (erased_[index] < 0) throw Error(ErrorCode::unavailable, "the server is shutting down");
  return erased_[index];
}

void Engine::stop(std::chrono::milliseconds grace) {
  {
    const std::lock_guard lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + grace;
    if (!stopping_ || deadline < stop_deadline_) stop_deadline_ = deadline;
    stopping_ = true;
    if (grace.count() == 0) abort_step_.store(true);
  }
  wake_.notify_one();
  idle_.notify_all();
}

bool Engine::any_active() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.state != SlotState::idle; });
}

void Engine::loop() {
  while (true) {
    take_new_tasks();
    drop_cancelled();
    while (start_deferred()) {
    }
    if (status_changed_) publish_status();  // before the step: one with a long prompt takes seconds
    const bool only_readers = any_active() && !step();
    publish_status();

    std::unique_lock lock(mutex_);
    const bool nothing_left = !any_active() && deferred_.empty() && incoming_.empty();
    if (stopping_ && (nothing_left || std::chrono::steady_clock::now() >= stop_deadline_)) break;
    // What waits for a slot can start now: with all slots idle nothing else would wake this thread.
    if (nothing_left && erase_requests_.empty())
      wake_.wait_for(lock, kIdleWait);
    else if (only_readers && incoming_.empty())
      wake_.wait_for(lock, kReaderWait);
  }
  const Error error(ErrorCode::unavailable, "the server is shutting down");
  fail_running(error);
  take_new_tasks();
  for (const Task& task : deferred_) fail_task(task, error);
  deferred_.clear();
  publish_status();
}

void Engine::take_new_tasks() {
  std::deque<int> erase;
  {
    const std::lock_guard lock(mutex_);
    for (Task& task : incoming_) deferred_.push_back(std::move(task));
    const std::uint64_t n_too_long = std::exchange(n_too_long_, 0);
    metrics_.n_requests += incoming_.size() + n_too_long;
    metrics_.n_failed += n_too_long;
    incoming_.clear();
    std::erase_if(erase_requests_, [&](int slot) {
      if (slots_[static_cast<std::size_t>(slot)].state != SlotState::idle) return false;
      erase.push_back(slot);
      return true;
    });
  }
  if (erase.empty()) return;
  for (const int id : erase) {
    Slot& slot = slots_[static_cast<std::size_t>(id)];
    const int n = static_cast<int>(slot.tokens.size());
    reset_cache(slot);
    const std::lock_guard lock(mutex_);
    erased_[static_cast<std::size_t>(id)] = n;
  }
  idle_.notify_all();
}

void Engine::drop_cancelled() {
  for (Slot& slot : slots_) {
    if (slot.state == SlotState::idle || !slot.reply.cancelled()) continue;
    ++metrics_.n_cancelled;
    ggml::logf(ggml::LogLevel::info, "slot %d: task %llu: the client has left, %d tokens were generated", slot.id,
               static_cast<unsigned long long>(slot.task), slot.timings.predicted_n);
    release(slot);
  }
  std::erase_if(deferred_, [&](const Task& task) {
    if (task.mailbox->cancelled()) ++metrics_.n_cancelled;
    return task.mailbox->cancelled();
  });
}

bool Engine::start_deferred() {
  for (auto it = deferred_.begin(); it != deferred_.end(); ++it) {
    if (try_start(*it)) {
      deferred_.erase(it);
      return true;
    }
    // First in, first out, but for requests that wait for a slot of their own.
    if (it->request.slot < 0) return false;
  }
  return false;
}

void Engine::fail_task(const Task& task, const Error& error) {
  for (int i = 0; i < task.request.n_completions; ++i) {
    task.mailbox->push(task.first_answer + i,
                       ErrorEvent{error, static_cast<int>(task.request.prompt.size()), params_.n_ctx_slot});
  }
  ++metrics_.n_failed;
}

bool Engine::try_start(Task& task) {
  const auto n_idle =
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.state == SlotState::idle; });
  if (n_idle < task.request.n_completions) return false;
  bool busy = false;
  Slot* first = choose_slot(task.request, busy);
  if (first == nullptr) return false;
  begin(*first, task, 0);
  for (int i = 1; i < task.request.n_completions; ++i) {
    GenerateRequest any = task.request;
    any.slot = -1;
    Slot* child = choose_slot(any, busy);
    begin(*child, task, i);
    if (child->state == SlotState::idle) continue;  // ended at once
    child->state = SlotState::waiting;
    child->parent = first->id;
  }
  if (first->state == SlotState::prompt) reuse_prefix(*first);
  return true;
}

Slot* Engine::choose_slot(const GenerateRequest& request, bool& busy) {
  busy = false;
  if (request.slot >= 0) {
    Slot& slot = slots_[static_cast<std::size_t>(request.slot)];
    busy = slot.state != SlotState::idle;
    return busy ? nullptr : &slot;
  }
  Slot* best = nullptr;
  if (params_.slot_similarity > 0.0f && request.cache_prompt && !request.prompt.empty()) {
    std::size_t best_common = 0;
    for (Slot& slot : slots_) {
      if (slot.state != SlotState::idle || slot.tokens.empty()) continue;
      if (slot.adapter_scales != request.adapter_scales) continue;
      const std::size_t common = common_prefix(slot.tokens, request.prompt);
      const float share = static_cast<float>(common) / static_cast<float>(request.prompt.size());
      if (share > params_.slot_similarity && common > best_common) {
        best = &slot;
        best_common = common;
      }
    }
  }
  if (best != nullptr) return best;
  for (Slot& slot : slots_) {
    if (slot.state != SlotState::idle) continue;
    if (best == nullptr || slot.last_used < best->last_used) best = &slot;
  }
  return best;
}

void Engine::begin(Slot& slot, const Task& task, int completion) {
  status_changed_ = true;
  slot.state = SlotState::prompt;
  slot.task = task.id;
  slot.request = task.request;
  slot.reply = {task.mailbox, task.first_answer + completion};
  if (completion > 0 && slot.request.sampling.seed != 0xFFFFFFFFu) {
    slot.request.sampling.seed += static_cast<std::uint32_t>(completion);  // or all answers would be the same
  }
  slot.text.emplace(slot.request.stop);
  slot.parent = -1;
  slot.n_prompt = static_cast<int>(slot.request.prompt.size());
  slot.n_prompt_done = 0;
  slot.next = -1;
  slot.truncated = false;
  slot.ever_used = true;
  slot.timings = {};
  slot.timings.n_ctx = params_.n_ctx_slot;
  slot.prompt_start_ms = now_ms();
  try {
    slot.sampler =
        std::make_unique<llama::Sampler>(slot.request.sampling, context_.model().vocab(), params_.n_ctx_slot);
    slot.sampler->accept_prompt(slot.request.prompt);
    if (slot.request.make_mask) slot.mask = slot.request.make_mask();
    slot.sampler->set_mask(slot.mask.get());
  } catch (const Error& error) {
    fail(slot, error);
    return;
  }
  // An empty text for a model without a token for the beginning: nothing to evaluate, nothing to go on from.
  if (slot.request.prompt.empty()) finish(slot, StopType::none, {});
}

void Engine::reuse_prefix(Slot& slot) {
  const std::vector<Token>& prompt = slot.request.prompt;
  int keep = 0;
  if (slot.request.cache_prompt) {
    // At least one token is evaluated again, since its logits are needed.
    const int limit = static_cast<int>(prompt.size()) - 1;
    const auto usable = [&](const Slot& other) {
      if (other.adapter_scales != slot.request.adapter_scales) return 0;
      const int common = std::min(limit, static_cast<int>(common_prefix(other.tokens, prompt)));
      return common > 0 ? context_.resume_point(other.seq, common) : 0;
    };
    keep = usable(slot);
    Slot* donor = nullptr;
    for (Slot& other : slots_) {
      if (&other == &slot || other.tokens.empty()) continue;
      const int n = usable(other);
      if (n > keep) {
        keep = n;
        donor = &other;
      }
    }
    if (donor != nullptr) {
      reset_cache(slot);
      context_.share_prefix(slot.seq, donor->seq, keep);
      slot.tokens.assign(prompt.begin(), prompt.begin() + keep);
    }
  }
  if (keep < static_cast<int>(slot.tokens.size())) {
    if (keep == 0) {
      reset_cache(slot);
    } else {
      context_.truncate(slot.seq, keep);
      slot.tokens.resize(static_cast<std::size_t>(keep));
    }
  }
  slot.adapter_scales = slot.request.adapter_scales;
  slot.n_prompt_done = keep;
  slot.timings.cache_n = keep;
  slot.prompt_start_ms = now_ms();
  if (slot.request.report_progress) slot.reply.push(ProgressEvent{slot.id, slot.n_prompt, keep, keep, 0.0});
}

void Engine::release_children(const Slot& parent) {
  for (Slot& child : slots_) {
    if (child.state != SlotState::waiting || child.parent != parent.id) continue;
    child.parent = -1;
    child.state = SlotState::prompt;
    reuse_prefix(child);  // finds the prompt in the parent's cache
  }
}

void Engine::finish(Slot& slot, StopType stop, std::string stopping_word) {
  FinalEvent end;
  if (stop != StopType::word) end.text = slot.text->finish();
  end.stop = stop;
  end.stopping_word = std::move(stopping_word);
  end.truncated = slot.truncated;
  end.has_new_line = slot.text->has_new_line();
  end.slot = slot.id;
  end.seed = slot.sampler->seed();
  end.n_prompt = slot.n_prompt;
  end.n_cached = static_cast<int>(slot.tokens.size());
  slot.timings.n_past = end.n_cached;
  end.timings = slot.timings;
  log_timings(slot, context_.stats());
  slot.reply.push(std::move(end));
  release(slot);
}

void Engine::fail(Slot& slot, const Error& error) {
  ++metrics_.n_failed;
  ggml::logf(ggml::LogLevel::error, "slot %d: task %llu: %s", slot.id, static_cast<unsigned long long>(slot.task),
             error.what());
  slot.reply.push(ErrorEvent{error, slot.n_prompt, params_.n_ctx_slot});
  release(slot);
}

void Engine::release(Slot& slot) {
  const bool was_parent = slot.state == SlotState::prompt;
  metrics_.prompt_tokens += static_cast<std::uint64_t>(slot.timings.prompt_n);
  metrics_.prompt_ms += slot.timings.prompt_ms;
  metrics_.predicted_tokens += static_cast<std::uint64_t>(slot.timings.predicted_n);
  metrics_.predicted_ms += slot.timings.predicted_ms;
  metrics_.n_tokens_max = std::max<std::uint64_t>(metrics_.n_tokens_max, slot.tokens.size());
  status_changed_ = true;
  slot.state = SlotState::idle;
  slot.reply = {};
  slot.sampler.reset();
  slot.mask.reset();
  slot.request.prompt.clear();
  slot.last_used = ++tick_;
  // The first of several completions left before its prompt was done: the next one evaluates the rest itself.
  if (was_parent) release_children(slot);
}

void Engine::reset_cache(Slot& slot) {
  if (slot.tokens.empty()) return;
  status_changed_ = true;
  context_.remove_sequence(slot.seq);
  slot.seq = context_.create_sequence();
  slot.tokens.clear();
}

void Engine::fail_running(const Error& error) {
  for (Slot& slot : slots_) {
    if (slot.state != SlotState::idle) fail(slot, error);
  }
}

void Engine::publish_status() {
  const double now = now_ms();
  if (!status_changed_ && now - published_ms_ < kStatusIntervalMs) return;
  status_changed_ = false;
  published_ms_ = now;
  EngineStatus status;
  status.metrics = metrics_;
  status.n_deferred = static_cast<int>(deferred_.size());
  const llama::ContextStats& stats = context_.stats();
  status.graph_builds = stats.graph_builds;
  status.scheduler = stats.prompt.scheduler;
  status.scheduler += stats.decode.scheduler;
  status.devices = stats.devices;
  if (stats.kv_blocks_total > 0) status.kv_usage = static_cast<double>(stats.kv_blocks_used) / stats.kv_blocks_total;
  for (const Slot& slot : slots_) {
    status.kv_tokens += static_cast<int>(slot.tokens.size());
    status.slots.push_back(slot_status(slot));
    // Requests under way are counted as they go, so that a scrape in the middle of a long answer sees it.
    if (slot.state == SlotState::idle) continue;
    status.metrics.prompt_tokens += static_cast<std::uint64_t>(slot.timings.prompt_n);
    status.metrics.prompt_ms += slot.timings.prompt_ms;
    status.metrics.predicted_tokens += static_cast<std::uint64_t>(slot.timings.predicted_n);
    status.metrics.predicted_ms += slot.timings.predicted_ms;
  }
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

double Engine::now_ms() const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace server
