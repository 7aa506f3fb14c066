#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ggml/device.h"
#include "ggml/scheduler.h"
#include "ggml/trace.h"
#include "llama/model.h"
#include "llama/sampler.h"
#include "llama/types.h"

namespace llama {

/// Prompts with weights in host memory on a device to which these are sent when they are needed (op offload).
struct OpOffload {
  ggml::DeviceId device{0};  // an index into the plan's devices; 0: everything is computed where its weights lie
  // From how many tokens on products with dense weights, and with those of routed experts, go there; 0: never.
  int dense_from = 0, experts_from = 0;
  bool by_ubatch = false;                 // tokens are those of a micro-batch; false: of a step
  std::optional<double> tokens_per_byte;  // set: tokens = bytes per element of each weight x this; experts: x all/used
  bool only_used_experts = true;          // -ooae; false: all experts of a layer are sent
  bool ahead = true;                      // a layer's weights are sent while the one before is computed
  // -op: products by kind. `up_gate` are those that one op computes together with the activation.
  bool dense = true, dense_up_gate = true, experts = true, experts_up_gate = true;
};

struct ContextParams {
  int n_ctx = 4096;    // cells in all for all sequences together; 0: the model's training context
  int n_batch = 2048;  // tokens a submit may carry
  int n_ubatch = 512;  // tokens computed at a time
  int n_seq_max = 1;   // sequences alive at a time
  ggml::DType k_type = ggml::DType::f16;
  ggml::DType v_type = ggml::DType::f16;
  // Heads are Hadamard-transformed before they are cached: keys together with queries, values with their inverse behind
  // attention. Without effect on encoders, which cache nothing.
  bool k_hadamard = false;
  bool v_hadamard = false;
  bool flash_attention = true;  // false: the checked decomposition; a quantised V is then refused
  bool reuse_graphs = true;     // false (-no-gr): build and compile every step anew, for comparison
  // What is computed in one op where a device has one; false: step by step, for comparison. The logits are the same but
  // for rounding.
  bool fused_experts = true;     // -fmoe: up, gate and activation of the routed experts
  bool fused_up_gate = true;     // -no-fug: the same of dense layers and shared experts
  bool fused_expert_sum = true;  // -no-mmad: weighting and adding what the routed experts gave
  // RoPE overrides; nullopt: the model's own.
  std::optional<float> rope_freq_base, rope_freq_scale, yarn_ext_factor, yarn_attn_factor, yarn_beta_fast,
      yarn_beta_slow;
  std::optional<int> yarn_orig_ctx;
  std::optional<std::string> rope_scaling;  // none, linear, yarn
  // Latent attention (-mla): 0 expanded keys and values are cached; 1 latents, always absorbed; 2 latents, always
  // expanded; 3 latents, prompts expanded; nullopt: latents, each step's form by modelled cost.
  std::optional<int> mla;
  int attention_max_batch_mib = 256;  // -amb: bound of what latent attention holds at a time; 0: none
  // -ser: of the chosen experts those from this rank on are dropped where their score is below a share of the best.
  int expert_min = -1;
  float expert_threshold = 0.0f;   // 0: off
  int n_state_checkpoints = 3;     // recurrent layers: states of the past kept per sequence
  bool embeddings = false;         // give embeddings instead of logits; always so for encoders
  std::optional<Pooling> pooling;  // nullopt: as the model says
  // Of the model's LoRA adapters by number, for sequences that do not say otherwise; empty: all 0.
  std::vector<float> adapter_scales;
  OpOffload offload;
  ggml::Observer* observer = nullptr;  // imatrix, dumps; all named tensors and projections are seen when set
  bool decompose_all = false;          // run primitives only (tests)
  ggml::Trace* trace = nullptr;        // --trace: takes down what ran when, by the machine's clock; borrowed
  bool report_schedule = false;        // --sched-report: log sched_report() when the context ends
};

enum class Outputs : std::uint8_t { none, last, all };

/// New tokens of one sequence. They continue at the sequence's present length.
struct StepSequence {
  SeqId seq;
  std::span<const Token> tokens;
  Outputs outputs = Outputs::last;
  Sampler* sampler = nullptr;  // set: sample the last row (outputs must not be none); else logits are returned
  // Of the model's LoRA adapters by number, finite; empty: the context's. The sequence's cells are to be computed with
  // the same ones: other scales need another sequence.
  std::span<const float> adapter_scales = {};
};

/// One unit of work: decode rows of some sequences beside prompt chunks of others.
struct Step {
  std::span<const StepSequence> sequences;
};

/// Names a submitted step. Tickets are collected in order; at most two may wait to be collected.
struct Ticket {
  std::uint64_t number = 0;
};

/// Results of one step, valid until the next collect().
struct StepResult {
  struct Sequence {
    SeqId seq;
    std::span<const float> logits;  // [n_vocab, n_outputs], empty when sampled
    int n_outputs = 0;
    // [n_embd, n_embeddings]: one of the sequence's step, or one per token with Pooling::none. Not normalised. A prompt
    // that was cut into several steps gives one for each.
    std::span<const float> embeddings;
    int n_embeddings = 0;
    std::optional<SampledToken> sampled;  // when a sampler was given; kNoToken if mask and biases allow none
  };
  std::vector<Sequence> sequences;  // as in the step
};

struct ContextStats {
  std::uint64_t graph_builds = 0;  // graphs built and compiled; flat while decoding
  std::uint64_t steps = 0;
  std::uint64_t tokens = 0;
  double weight_bytes = 0;  // bytes of weights and KV that the last step had to read
  double kv_bytes = 0;
  std::uint64_t kv_total_bytes = 0, arena_bytes = 0;
  std::uint64_t staging_bytes = 0;       // on the device of op offload: for weights on their way, and streams
  std::uint64_t kv_bytes_per_token = 0;  // of layers that keep every token
  // Of the compiled segment whose scratch exceeds its lower bound the most: bytes planned, bytes alive at one time.
  std::uint64_t scratch_bytes = 0, scratch_live_bytes = 0;
  int kv_blocks_total = 0, kv_blocks_used = 0;
  ggml::SchedulerStats scheduler;  // of the last step: splits, and what crossed the links between devices
  /// The same added up over the steps so far: those of one token for each sequence, and the others.
  struct Total {
    std::uint64_t steps = 0;
    ggml::SchedulerStats scheduler;
  };
  Total decode, prompt;
  std::vector<std::string> devices;  // names, in the order of `links`
};

/// Evaluates steps of one model on the devices it was loaded for. Thread-compatible: one thread (the engine's loop) at
/// a time.
class Context {
 public:
  /// Throws Error(out_of_memory) with wanted and free bytes, Error(invalid_argument) naming the setting.
  Context(const Model& model, ggml::Device& device, const ContextParams& params);
  /// Over several devices: those of the plan that the model was loaded with, in its order. Keys, values and states of a
  /// layer lie where the plan says, but on the CPU where the device cannot work on them.
  Context(const Model& model, std::span<ggml::Device* const> devices, const Plan& plan, const ContextParams& params);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] const ContextParams& params() const;  // as resolved: n_ctx rounded to blocks
  [[nodiscard]] const Model& model() const;
  [[nodiscard]] const ContextStats& stats() const;
  /// What steps did on which device since the start, lines of text for each kind of step (--sched-report).
  [[nodiscard]] std::string sched_report() const;

  // Sequences.
  /// A new empty sequence. Throws Error(unavailable) beyond n_seq_max.
  SeqId create_sequence();
  void remove_sequence(SeqId seq);
  [[nodiscard]] int length(SeqId seq) const;
  /// Cuts a sequence to its first `n_tokens` cells. Throws Error(unsupported) unless resume_point() is n_tokens.
  void truncate(SeqId seq, int n_tokens);
  /// The largest n <= n_tokens to which the sequence can be cut and continued (windows and recurrent state may have
  /// forgotten more).
  [[nodiscard]] int resume_point(SeqId seq, int n_tokens) const;
  /// Makes `dst` (empty) share the first `n_tokens` cells of `src`; sharing is by token, blocks are copied on write.
  void share_prefix(SeqId dst, SeqId src, int n_tokens);
  /// Drops cells [begin, begin + n) and moves the later ones up, re-rotating their keys (context shift). Throws
  /// Error(unsupported) where that has no meaning.
  void shift(SeqId seq, int begin, int n);
  /// Whether `n_tokens` more cells for this sequence fit now.
  [[nodiscard]] bool can_append(SeqId seq, int n_tokens) const;
  /// Asserts the invariants of blocks, tables and reference counts (tests; the engine when idle).
  void check_integrity() const;

  // Work.
  /// Checks the step and starts it. Throws Error: exceeds_limit (more than n_batch tokens, no free cells: nothing was
  /// changed), invalid_argument (token outside the vocabulary, unknown sequence). On success the sequences have grown.
  Ticket submit(const Step& step, const ggml::StopToken& stop = {});
  /// Waits for the step; throws what it threw (then its sequences are back at their old length).
  const StepResult& collect(Ticket ticket);
  const StepResult& run(const Step& step, const ggml::StopToken& stop = {}) { return collect(submit(step, stop)); }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llama
