#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "llama/context.h"
#include "llama/model.h"
#include "llama/name_pattern.h"
#include "llama/plan.h"

/// From what the user said about placement to a Plan: rules, memory, --fit. Reads headers only; nothing here allocates
/// on a device or touches a weight.
namespace llama {

inline constexpr int kAllLayers = std::numeric_limits<int>::max();

enum class SplitMode : std::uint8_t { none, layer };

/// Which blocks --n-cpu-moe means. `automatic`: first where one device has layers, even where several have.
enum class ExpertBlocks : std::uint8_t { automatic, first, last, even };

/// A buffer type as -ot names it: "CPU", a device, or host memory that a device may read ("CUDA_Host").
struct BufferType {
  std::string name;
  ggml::DeviceId device{0};
  ggml::BufferKind kind = ggml::BufferKind::mapping;
};
/// The buffer types of these devices, sorted by name.
[[nodiscard]] std::vector<BufferType> buffer_types(const std::vector<PlanDevice>& devices);

struct PlacementRules;
/// Throws Error(invalid_argument), listing the known ones, where a rule names a buffer type that does not exist.
void check_buffer_names(const PlacementRules& rules, const std::vector<PlanDevice>& devices);

/// One -ot.
struct BufferRule {
  NamePattern pattern;
  std::string buffer;  // name of a buffer type
  std::string origin = "-ot";
  [[nodiscard]] std::string text() const { return origin + " " + pattern.text() + "=" + buffer; }
};

/// What the user said. What was left alone has its default: everything on the devices.
struct PlacementRules {
  std::optional<int> n_gpu_layers;  // counted from the back, the head being one; kAllLayers; nullopt: all
  std::vector<BufferRule> tensor_rules;
  bool cpu_moe = false;
  int n_cpu_moe = 0;
  ExpertBlocks cpu_moe_blocks = ExpertBlocks::automatic;
  int n_cpu_ffn = 0;
  SplitMode split_mode = SplitMode::layer;
  std::vector<float> tensor_split;  // per device without the CPU; empty or all zero: by free memory
  /// Index without the CPU; negative: none. With SplitMode::none the device of all layers, else the one that computes
  /// prompts with weights in host memory. nullopt: the first one, or the one with the best link.
  std::optional<int> main_gpu;
  bool kv_offload = true;
  bool mapped = true;        // weights in host memory are the file's pages
  std::string layer_origin;  // who chose the layers' devices; empty: the user, with -ngl or its default
};

/// Where a tensor is used.
enum class TensorUse : std::uint8_t { input, layer, head, input_and_head, every_layer };

struct PlanTensor {
  std::string name;
  ggml::DType type = ggml::DType::f32;
  ggml::Shape shape;
  std::uint64_t bytes = 0;  // as in the file
  TensorUse use = TensorUse::layer;
  int layer = -1;
  bool expert = false;     // of the routed experts
  bool dense_ffn = false;  // a matrix of a dense feed-forward
  int follows = -1;        // derived weights: index of the tensor that they are made from
  int merge_group = -1;    // which tensors become one, in memory of its own, where they are on the same devices
};

/// What the rules need of a model.
struct PlanModel {
  int n_layer = 0;
  std::vector<PlanTensor> tensors;
  double expert_share = 1.0;  // of the routed experts that a token uses
};
[[nodiscard]] PlanModel plan_model(const Model& outline);

/// What became of one rule.
struct RuleOutcome {
  std::string rule, device;
  int n_tensors = 0;
  std::uint64_t bytes = 0;
  std::string blocks;    // --n-cpu-moe, --n-cpu-ffn: "0-9"
  int n_shadowed = 0;    // matches that earlier rules took
  std::string shadower;  // the first of those
};

struct Placed {
  Plan plan;  // weights are counted; the rest of `use` is zero
  std::vector<RuleOutcome> rules;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;  // one line each, for the log
  std::vector<std::string> idle;   // those of them that tell of rules which do nothing
};

/// Applies the rules. `devices`: the CPU first. Throws Error(invalid_argument): unknown buffer type (lists the known
/// ones), main device out of range.
[[nodiscard]] Placed place(const PlanModel& model, const std::vector<PlanDevice>& devices, const PlacementRules& rules);

/// What a context needs beside the weights. Both functions take the context size in tokens.
struct ContextMemory {
  std::function<std::vector<std::uint64_t>(int n_ctx)> kv_per_layer;  // bytes of keys and values, or of states
  /// Per device: arenas, staging and overhead of a context that obeys the plan, and as `weights` the copies of small
  /// tensors that lie beside what they are used with.
  std::function<std::vector<DeviceUse>(const Plan& plan, int n_ctx)> beside;
};

/// Fills in `use` of a plan that place() made.
void add_context_use(const ContextMemory& memory, int n_ctx, Plan& plan);

/// Bytes that a device lacks for what must be there; weights of the host that are pages of a file can always be read
/// anew and do not count.
[[nodiscard]] std::uint64_t shortfall(const Plan& plan, std::size_t device);
[[nodiscard]] bool fits(const Plan& plan);

/// What is to be changed where a plan does not fit.
struct ChangeRequest {
  PlacementRules rules;      // the user's, without what --fit chose
  int n_ctx = 0;             // that was planned with
  bool fits_itself = false;  // --fit is on with these rules: it has moved layers and experts as far as they may go
  /// Plans anew as a start with these rules would, --fit included; `n_ctx`: what -c says, nullopt: what it said before.
  /// Gives the plan when it fits.
  std::function<std::optional<Plan>(const PlacementRules& rules, std::optional<int> n_ctx)> plan_anew;
};

/// The change of what the user said that makes the plan fit and steps shortest, as flags ("--n-cpu-moe 41"); empty:
/// none was found. What it names has been planned with. `plan`: what place() and add_context_use() made of the rules.
[[nodiscard]] std::string smallest_change(const PlanModel& model, const Plan& plan, const ContextMemory& memory,
                                          const ChangeRequest& request);

/// What the user said about prompts with weights in host memory.
struct OffloadRequest {
  bool enabled = true;                    // --op-offload
  std::optional<int> min_batch;           // GGML_OP_OFFLOAD_MIN_BATCH: micro-batches of that many tokens, all products
  std::optional<int> batch_size;          // -cuda offload-batch-size: the same, experts x all/used
  std::optional<double> tokens_per_byte;  // -cuda offload-batch-size-per-byte: by the bytes of an element
  OpOffload products;                     // of it: -op and -ooae
  int n_batch = 0, n_ubatch = 0;
};

/// From which prompt size on it is faster to send weights in host memory over the link of a device.
struct PromptOffload {
  ggml::DeviceId device{0};
  std::uint64_t bytes = 0, expert_bytes = 0;  // of those weights; of routed experts among them
  int tokens = 0;                             // in a step, or as `offload` says: any of them; 0: never
  bool has_profile = true;                    // of the device; else 32 tokens, for experts x all/used
  OpOffload offload;                          // for a context
};
/// nullopt: no device may do it (-mg, --no-op-offload), or all weights are on devices.
[[nodiscard]] std::optional<PromptOffload> prompt_offload(const PlanModel& model, const Plan& plan,
                                                          const PlacementRules& rules, const OffloadRequest& request);

/// Modelled seconds of a decode step that reads `kv_read_per_layer` bytes of the cache.
[[nodiscard]] double decode_seconds(const PlanModel& model, const Plan& plan,
                                    const std::vector<std::uint64_t>& kv_read_per_layer);

/// What --fit may choose, and what it must keep.
struct FitRequest {
  int n_ctx = 0;                // given, or the most that is wanted
  bool choose_context = false;  // may be made smaller
  int least_context = 4096;
  int context_step = 256;              // tokens
  std::vector<std::uint64_t> margins;  // per device, to stay free; missing ones: 0
};

struct Fitted {
  PlacementRules rules;  // the user's, with what they left open filled in
  int n_ctx = 0;
  std::vector<std::string> notes;        // what the user must know: a line each
  std::vector<std::string> explanation;  // for --fit explain
};

/// Chooses what `rules` leave open so that a decode step takes the least modelled time. Where nothing fits, the rules
/// come back as they are.
[[nodiscard]] Fitted fit(const PlanModel& model, const std::vector<PlanDevice>& devices, const PlacementRules& rules,
                         const ContextMemory& memory, const FitRequest& request);

/// The rules as flags of which a start makes the same plan: "-c 8192 -ngl 99 -ts 25,24 -ot "..."". How weights are read
/// and which devices there are is not among them.
[[nodiscard]] std::string flags_text(const PlacementRules& rules, int n_ctx, std::size_t n_devices);
/// A word of a command line, in quotes that a POSIX shell takes away.
[[nodiscard]] std::string shell_quoted(const std::string& word);

/// "0-2,5": the numbers of a sorted list.
[[nodiscard]] std::string ranges_text(const std::vector<int>& numbers);
/// "12.3 GiB"
[[nodiscard]] std::string size_text(std::uint64_t bytes);

}  // namespace llama
