#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/metrics.h"
#include "engine/slot.h"
#include "llama/context.h"

namespace server {

struct EngineParams {
  int n_slots = 1;
  int n_ctx_slot = 0;            // tokens one slot may hold
  int n_predict = -1;            // server-wide bound on an answer; -1: none
  float slot_similarity = 0.1f;  // -sps: share of the prompt that a slot's cache must cover to be preferred; 0: off
  bool context_shift = false;
  std::vector<float> adapter_scales;  // of requests that bring none, at the start; one per adapter of the model
  bool continuous_batching = true;    // false: a step takes prompts or decodes, and prompts wait for all answers
};

/// What GET /slots and GET /metrics show. A copy.
struct SlotStatus {
  int id = 0;
  bool processing = false;
  bool ever_used = false;
  std::uint64_t task = 0;
  int n_prompt = 0, n_prompt_processed = 0, n_prompt_cache = 0, n_decoded = 0, n_remain = -1;
  bool has_new_line = false;
  GenerateRequest request;  // without its prompt
  std::vector<Token> tokens;
};
struct EngineStatus {
  Metrics metrics;
  std::vector<SlotStatus> slots;
  int n_deferred = 0;
  int kv_tokens = 0;      // in all slots
  double kv_usage = 0.0;  // share of the KV blocks in use
  std::uint64_t graph_builds = 0;
  ggml::SchedulerStats scheduler;    // of all steps
  std::vector<std::string> devices;  // names, in the order of its links
};

/// Continuous batching over the slots of one context. One loop thread owns context and slots; submit(), status() and
/// stop() may be called from any thread.
class Engine {
 public:
  Engine(llama::Context& context, const EngineParams& params);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request; its completions come to `mailbox` as the answers first_answer, first_answer + 1, ... One whose
  /// prompt fits no slot has its errors there already when this returns. Throws Error: invalid_argument (slot number,
  /// number of completions), unavailable (stopping).
  void submit(GenerateRequest request, const std::shared_ptr<Mailbox>& mailbox, int first_answer);
  [[nodiscard]] EngineStatus status();
  /// Whether stop() was called: nothing new is taken.
  [[nodiscard]] bool stopping();
  /// The scales of LoRA adapters that requests have which bring none; those that run keep theirs.
  [[nodiscard]] std::vector<float> adapter_scales();
  /// Pre: one finite scale per adapter.
  void set_adapter_scales(std::vector<float> scales);
  /// Forgets an idle slot's cache; waits until the slot is idle. Returns the number of tokens dropped.
  int erase_slot(int slot);
  [[nodiscard]] const EngineParams& params() const { return params_; }
  /// No new requests; running ones end normally within `grace`, the rest with Error(unavailable). Idempotent.
  void stop(std::chrono::milliseconds grace);

 private:
  struct Task {
    std::uint64_t id;
    GenerateRequest request;
    std::shared_ptr<Mailbox> mailbox;
    int first_answer;
  };

  void loop();
  /// False: there was nothing to compute but answers whose readers have fallen behind.
  bool step();
  // Requests and slots.
  void take_new_tasks();
  void drop_cancelled();
  bool start_deferred();
  bool try_start(Task& task);
  Slot* choose_slot(const GenerateRequest& request, bool& busy);
  void begin(Slot& slot, const Task& task, int completion);
  void reuse_prefix(Slot& slot);
  void release_children(const Slot& parent);
  void finish(Slot& slot, StopType stop, std::string stopping_word);
  void fail(Slot& slot, const ggml::Error& error);
  void fail_task(const Task& task, const ggml::Error& error);
  void release(Slot& slot);
  void reset_cache(Slot& slot);
  // One step.
  struct Rows;
  void plan_rows(Rows& rows);
  void run_rows(Rows& rows);
  void run_each_alone(Rows& rows);
  [[nodiscard]] const llama::StepResult& compute(const Rows& rows);
  void take_results(const Rows& rows, const llama::StepResult& result);
  void after_prompt(Slot& slot, int n_tokens, const llama::StepResult::Sequence& result);
  void after_token(Slot& slot, const llama::SampledToken& sampled);
  bool make_room(Slot& slot);
  bool free_idle_cache();
  void fail_running(const ggml::Error& error);
  void publish_status();  // cheap when nothing began or ended and the last copy is fresh
  [[nodiscard]] bool any_active() const;
  [[nodiscard]] double now_ms() const;

  llama::Context& context_;
  const EngineParams params_;
  std::vector<Slot> slots_;      // loop thread
  std::deque<Task> deferred_;    // loop thread
  std::uint64_t tick_ = 0;       // loop thread
  Metrics metrics_;              // loop thread
  double published_ms_ = 0;      // loop thread: when status_ was last made
  bool status_changed_ = false;  // loop thread: a request began or ended since then
  std::unique_ptr<Rows> rows_;   // loop thread; reused from step to step

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<Task> incoming_;
  std::deque<int> erase_requests_;
  std::vector<int> erased_;  // per slot: tokens dropped by the last erase, -1 while it waits
  std::uint64_t next_task_ = 1;
  std::uint64_t n_too_long_ = 0;  // requests refused by submit() that metrics_ does not count yet
  std::vector<float> adapter_scales_;
  EngineStatus status_;
  bool stopping_ = false;
  std::chrono::steady_clock::time_point stop_deadline_{};

  std::atomic<bool> abort_step_{false};
  std::thread thread_;
};

}  // namespace server
