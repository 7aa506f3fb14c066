#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/args/grid.h"
#include "ggml/log.h"
#include "ggml/type.h"

namespace common {

// What the command line and the environment said, one plain struct per subsystem. Filled once by parse(), read-only
// afterwards. A field holds the default when the user said nothing; where a tool must know whether the user spoke, the
// field is optional.

/// A switch that may also be left to the program.
enum class Tristate : std::uint8_t { off, on, automatic };

/// How weights come into memory (-lm, --mmap, --mlock, -dio).
enum class LoadMode : std::uint8_t { read, mmap, direct_io };

/// One --override-kv: a metadata value that replaces, or adds to, what the file says.
struct MetadataOverride {
  enum class Type : std::uint8_t { integer, number, boolean, text };
  std::string key;
  Type type = Type::text;
  std::int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  std::string text;  // at most 127 bytes
  bool operator==(const MetadataOverride&) const = default;
};

/// A file that is added to the model, with a factor.
struct ScaledFile {
  std::string path;
  float scale = 1.0f;
  bool operator==(const ScaledFile&) const = default;
};

struct ModelSettings {
  std::string path;  // -m; empty when not given
  LoadMode load_mode = LoadMode::mmap;
  bool lock_memory = false;  // --mlock
  bool warmup = true;
  bool merge_qkv = false;           // -mqkv
  bool merge_up_gate = false;       // -muge: of expert stacks
  bool repack = false;              // -rtr: interleaved rows for the CPU; the file is then read
  bool check_tensors = false;       // scan weights for NaN and infinity while loading
  bool list_devices = false;        // --list-devices: print and end
  bool list_architectures = false;  // --list-architectures: the same
  std::vector<MetadataOverride> overrides;
  std::vector<ScaledFile> adapters;     // --lora, --lora-scaled
  bool adapters_start_at_zero = false;  // --lora-init-without-apply
  std::vector<ScaledFile> control_vectors;
  std::optional<std::pair<int, int>> control_vector_layers;  // both included; nothing: all
  bool operator==(const ModelSettings&) const = default;
};

/// --numa: where threads and memory are on machines with several memory nodes.
enum class Numa : std::uint8_t { off, distribute, isolate, numactl };

/// CPU threads.
struct ThreadSettings {
  int n_threads = -1;        // <= 0: physical cores
  int n_threads_batch = -1;  // <= 0: as n_threads
  std::vector<int> cpus;     // -C, -Cr: the CPUs to use; empty = not restricted
  bool strict = false;       // --cpu-strict: one of `cpus` per thread, in turn
  int priority = 0;          // --prio: -1 low ... 3 realtime
  int poll = 50;             // 0 sleeps, 100 spins
  // The same for prompts; nothing = as above.
  std::optional<std::vector<int>> cpus_batch;
  std::optional<bool> strict_batch;
  std::optional<int> priority_batch, poll_batch;
  Numa numa = Numa::off;
  std::string cpu_isa;  // GGML_CPU_ISA: forces one instruction set of the kernels; empty = the best
  bool operator==(const ThreadSettings&) const = default;
};

enum class RopeScaling : std::uint8_t { from_model, none, linear, yarn };

/// Overrides of the model's rotary parameters; nothing = what the file says.
struct RopeSettings {
  RopeScaling scaling = RopeScaling::from_model;
  std::optional<float> freq_base;
  std::optional<float> freq_scale;  // --rope-scale N stores 1/N
  std::optional<int> yarn_orig_ctx;
  std::optional<float> yarn_ext_factor;
  std::optional<float> yarn_attn_factor;
  std::optional<float> yarn_beta_slow;
  std::optional<float> yarn_beta_fast;
};

struct ContextSettings {
  std::optional<int> n_ctx;       // tokens over all sequences; 0 or nothing = the model's training context
  int n_batch = 2048;             // tokens per decode call
  int n_ubatch = 512;             // tokens per step; never above n_batch
  std::optional<int> n_parallel;  // sequences; nothing: 4 in the server, 1 elsewhere
  Tristate flash_attention = Tristate::automatic;
  bool fused_experts = true;          // -fmoe
  bool fused_up_gate = true;          // -no-fug
  bool fused_expert_sum = true;       // -no-mmad
  bool graph_reuse = true;            // -no-gr rebuilds at every step
  std::optional<int> mla;             // -mla: form of latent attention; nothing: by modelled cost
  int attention_max_batch_mib = 256;  // -amb
  int expert_min = -1;                // -ser: experts that are always used; -1: all of the chosen
  float expert_threshold = 0.0F;      // -ser: share of the best score that the others need
  std::optional<int> n_checkpoints;   // states of recurrent layers kept per sequence
  RopeSettings rope;
};

struct CacheSettings {
  ggml::DType type_k = ggml::DType::f16;
  ggml::DType type_v = ggml::DType::f16;
  bool k_hadamard = false, v_hadamard = false;
  bool unified = false;  // slots share one buffer; on by default when the number of slots was left open
  bool unified_given = false;
  bool context_shift = false;
  int n_keep = 0;  // tokens kept on a context shift; -1 all
};

/// --sim-device: a device that is not there.
struct SimulatedDevice {
  std::string name;
  std::uint64_t bytes = 0;
  std::optional<double> bandwidth;  // bytes/s of its memory
  std::optional<double> link;       // bytes/s to the host
  std::vector<std::string> lacks;   // ops and types
  bool operator==(const SimulatedDevice&) const = default;
};

enum class SplitMode : std::uint8_t { none, layer };
/// Which blocks --n-cpu-moe means.
enum class ExpertBlocks : std::uint8_t { automatic, first, last, even };
enum class Fit : std::uint8_t { automatic, off, on, explain };
enum class DryRun : std::uint8_t { off, table, json };

/// Prompts with weights in host memory on a GPU.
struct OffloadSettings {
  std::optional<int> min_batch;               // GGML_OP_OFFLOAD_MIN_BATCH
  std::optional<int> batch_size;              // -cuda offload-batch-size
  std::optional<double> batch_size_per_byte;  // -cuda offload-batch-size-per-byte
  bool only_active_experts = true;            // -ooae
  // -op: products with dense weights, those fused with the activation, and the same with experts.
  bool mul_mat = true, mul_mat_id = true, up_gate = true, moe_up_gate = true;
  bool operator==(const OffloadSettings&) const = default;
};

/// Which tensor goes where.
struct PlacementSettings {
  std::optional<int> n_gpu_layers;                                // std::numeric_limits<int>::max() = all
  std::vector<std::pair<std::string, std::string>> tensor_rules;  // -ot PATTERN=BUFFER, in the order given
  bool cpu_moe = false;
  int n_cpu_moe = 0;
  ExpertBlocks n_cpu_moe_blocks = ExpertBlocks::automatic;
  int n_cpu_ffn = 0;
  SplitMode split_mode = SplitMode::layer;
  std::vector<float> tensor_split;
  std::optional<int> main_gpu;                      // in the list of devices; negative: none
  std::optional<std::vector<std::string>> devices;  // -dev; empty: the CPU only
  std::vector<SimulatedDevice> simulated;
  std::string device_profile;                            // file of measured speeds; empty: none
  int cuda_per_card = 1;                                 // --cuda-logical-devices
  Fit fit = Fit::automatic;                              // automatic: on without -ngl and -ot
  std::vector<int> fit_margins_mib = {1024};             // per GPU; one for all
  std::vector<std::pair<std::string, int>> gpu_margins;  // -gfm: a GPU's name or number, MiB
  int fit_context = 4096;
  DryRun dry_run = DryRun::off;
  bool fit_print = false;  // llama-fit-params: memory per device instead of flags
  bool kv_offload = true;
  bool op_offload = true;
  OffloadSettings offload;
};

/// What is shown of the scheduler's work.
struct ScheduleSettings {
  std::string trace_file;  // --trace; empty: none
  bool report = false;     // --sched-report
};

/// The sampler chain: names in order ("top_k", "temperature", ...), and the numbers of each.
struct SamplingSettings {
  std::vector<std::string> samplers = {"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                       "top_p",     "min_p", "xtc",         "temperature"};
  std::uint32_t seed = 0xFFFFFFFF;  // all ones = random
  bool ignore_eos = false;
  float temperature = 0.8F;
  float dynatemp_range = 0.0F;
  float dynatemp_exponent = 1.0F;
  int top_k = 40;          // <= 0 off
  float top_p = 0.95F;     // 1 off
  float min_p = 0.05F;     // 0 off
  float top_n_sigma = -1;  // <= 0 off
  float typical_p = 1.0F;  // 1 off
  float tfs_z = 1.0F;      // 1 off
  float xtc_probability = 0.0F;
  float xtc_threshold = 0.1F;
  int penalty_last_n = 64;  // 0 off, -1 context
  float repeat_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  float dry_multiplier = 0.0F;
  float dry_base = 1.75F;
  int dry_allowed_length = 2;
  int dry_penalty_last_n = 64;  // -1 context
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};
  float adaptive_target = -1.0F;
  float adaptive_decay = 0.9F;
  bool adaptive_new_p = false;  // average the probabilities after adaptive-p's transformation
  int mirostat = 0;
  float mirostat_lr = 0.1F;                                // eta
  float mirostat_ent = 5.0F;                               // tau
  std::vector<std::pair<std::int32_t, float>> logit_bias;  // token id, bias
  std::string grammar;                                     // GBNF; at most one of the two is set
  std::string json_schema;                                 // JSON text
  std::string grammar_source;                              // the option that gave either: "--grammar-file x.gbnf"
  std::vector<std::string>
      given;  // the fields that the user set ("top_k"): the model file's defaults leave these alone

  [[nodiscard]] bool is_given(const std::string& field) const {
    for (const std::string& name : given)
      if (name == field) return true;
    return false;
  }
};

enum class ReasoningFormat : std::uint8_t { automatic, none, deepseek, deepseek_legacy };

struct ChatSettings {
  bool jinja = true;
  std::string chat_template;           // text or built-in name; empty = the model's (--chat-template-file is read here)
  std::string template_kwargs = "{}";  // a JSON object, checked
  ReasoningFormat reasoning_format = ReasoningFormat::automatic;
  Tristate reasoning = Tristate::automatic;
  std::optional<bool> preserve_reasoning;  // --reasoning-preserve; nothing = when the template can
  int reasoning_budget = -1;               // tokens; -1: no limit
  std::string reasoning_budget_message;    // written where the budget ends a thought
  bool prefill_assistant = true;
  bool parse_replies = true;                // --skip-chat-parsing turns it off: everything is content
  std::optional<bool> parallel_tool_calls;  // nothing = when the template can
};

struct ServerSettings {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0 = any free port
  bool reuse_port = false;
  std::vector<std::string> aliases;
  std::vector<std::string> tags;
  std::vector<std::string> api_keys;  // --api-key and the lines of --api-key-file
  int timeout_s = 3600;
  int sse_ping_interval_s = 30;  // -1 off
  int threads_http = -1;         // <= 0: max(slots + 4, cores - 1)
  std::string api_prefix;
  std::string static_path;  // --path
  bool web_page = true;
  std::string cors_origins = "*";
  std::string cors_methods = "GET, POST, DELETE, OPTIONS";
  std::string cors_headers = "*";
  bool cors_credentials = true;
  bool metrics = false;
  bool props = false;  // POST /props
  bool slots = true;   // GET /slots
  bool continuous_batching = true;
  float slot_similarity = 0.1F;  // -sps; 0 off
  bool cache_prompt = true;
};

/// What llama-cli, llama-tokenize and the server's defaults share about the prompt.
struct PromptSettings {
  std::string prompt;       // -p, -f or -bf, escapes processed
  std::string prompt_file;  // -f
  std::string system_prompt;
  int n_predict = -1;  // -1 unlimited, -2 until the context is full
  bool escape = true;
  Tristate conversation = Tristate::automatic;
  bool single_turn = false;
  bool interactive = false;
  bool interactive_first = false;
  bool multiline_input = false;
  std::string in_prefix;
  std::string in_suffix;
  bool in_prefix_bos = false;
  std::vector<std::string> reverse_prompts;
  bool display_prompt = true;
  bool verbose_prompt = false;
  bool show_timings = true;
  bool special = false;  // print special tokens
  bool simple_io = false;
  Tristate color = Tristate::automatic;
};

struct TokenizeSettings {
  bool ids = false;
  bool from_stdin = false;
  bool no_bos = false;
  bool no_parse_special = false;
  bool show_count = false;
};

enum class SweepFormat : std::uint8_t { markdown, jsonl };

/// llama-sweep-bench; what llama-bench is told is a grid::Grid.
struct BenchSettings {
  int repetitions = 1;        // -nrep
  bool warmup_batch = false;  // -wb
  int stride = 1;             // --sweep-stride
  bool memory = false;        // --sweep-memory
  bool roofline = false;      // --roofline
  SweepFormat format = SweepFormat::markdown;
  std::string output_file;           // a clean copy of the table
  std::string chart_file;            // --chart: *.svg or *.html
  std::vector<std::string> compare;  // --compare: the flags of each configuration
};

/// llama-gguf FILE...
struct GgufSettings {
  std::vector<std::string> files;
  bool json = false;
  bool full = false;  // arrays and long strings whole
};

/// llama-gguf synth: the model to write.
struct SynthSettings {
  std::string preset;
  std::string mix = "q4_k_m";
  std::string output;
  bool list = false;  // --list: print and end
  std::optional<int> layers, experts, vocab;
  std::uint64_t seed = 1;
  float router_skew = 0;  // 0: every expert is chosen about equally often
  bool sparse = false;    // header only; the data are a hole
};

/// llama-gguf-split IN OUT
struct GgufSplitSettings {
  std::vector<std::string> files;
  bool merge = false;
  std::optional<int> max_tensors;          // of a part; nothing: 128, or no bound when max_bytes is set
  std::optional<std::uint64_t> max_bytes;  // of a part
  bool tensors_in_first = true;            // false: the first part holds metadata only
  bool dry_run = false;
  bool delete_splits = false;  // --merge: remove the parts once the file is there
};

/// llama-quantize IN [OUT] TYPE [NTHREADS]
struct QuantizeSettings {
  std::vector<std::string> words;
  bool allow_requantize = false;
  bool leave_output_tensor = false;
  bool pure = false;
  bool keep_split = false;
  bool dry_run = false;
  std::string imatrix;
  bool hide_imatrix = false;
  bool ignore_imatrix_rules = false;
  std::vector<std::string> include_weights, exclude_weights;
  std::optional<ggml::DType> output_type, token_embedding_type, per_layer_embedding_type, router_type;
  std::vector<std::pair<std::string, ggml::DType>> type_rules;  // regular expression, type; the first match counts
  std::vector<std::string> type_rule_files;
  std::vector<std::pair<std::string, ggml::DType>> role_types;  // part of a tensor's name, type
  std::vector<int> pruned_layers;
  std::string rules;  // whose mixture rules: llama.cpp, ik_llama.cpp; empty: by file type
};

/// llama-imatrix
struct ImatrixSettings {
  std::string output;  // empty: imatrix.gguf
  std::optional<bool> legacy_format;
  int output_frequency = 10;  // chunks between writes
  int save_frequency = 0;     // chunks between copies that are kept; 0: none
  bool process_output = false;
  bool perplexity = true;
  int first_chunk = 0;
  std::vector<std::string> inputs;
  bool show_statistics = false;
  bool parse_special = false;
};

/// llama-perplexity; --chunks is llama-imatrix's too.
struct PerplexitySettings {
  int chunks = -1;  // -1: all
  int stride = 0;
  int output_type = 0;
  std::string logits_file;  // --kl-divergence-base: written, or read with --kl-divergence
  bool kl_divergence = false;
  bool hellaswag = false, winogrande = false, multiple_choice = false;
  int hellaswag_tasks = 400, winogrande_tasks = 0, multiple_choice_tasks = 0;  // 0: all
};

struct LogSettings {
  bool disabled = false;
  std::string file;
  Tristate colors = Tristate::automatic;  // automatic: on a terminal, unless NO_COLOR is set
  std::optional<bool> prefix;             // level letter before each line
  std::optional<bool> timestamps;
  int verbosity = 3;  // 0 output, 1 error, 2 warning, 3 info, 4 trace, 5 debug
  bool json = false;  // --log-format json
};

/// Everything one executable was told.
struct Settings {
  std::vector<std::string> line;  // the words of the command line, for a program that runs variants of it
  ModelSettings model;
  ThreadSettings threads;
  ContextSettings context;
  CacheSettings cache;
  PlacementSettings placement;
  ScheduleSettings schedule;
  SamplingSettings sampling;
  ChatSettings chat;
  ServerSettings server;
  PromptSettings prompt;
  TokenizeSettings tokenize;
  BenchSettings bench;
  grid::Grid grid;
  GgufSettings gguf;
  SynthSettings synth;
  GgufSplitSettings gguf_split;
  QuantizeSettings quantize;
  ImatrixSettings imatrix;
  PerplexitySettings perplexity;
  LogSettings log;
};

}  // namespace common
