#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ggml/device.h"
#include "ggml/gguf.h"
#include "llama/types.h"
#include "llama/vocab.h"

namespace llama {

enum class LoadMode : std::uint8_t { mmap, read, direct_io };

/// --override-kv KEY=TYPE:VALUE, applied to the metadata before anything reads it.
struct KvOverride {
  std::string key;
  std::string type;  // int, float, bool, str
  std::string value;
};

/// A file with a direction per layer, which is added to what the layer gives.
struct ControlVector {
  std::string path;
  float scale = 1.0f;
};

struct ModelParams {
  std::string path;
  LoadMode load_mode = LoadMode::mmap;
  bool lock_memory = false;    // --mlock
  bool check_tensors = false;  // --check-tensors: refuse NaN and infinite scales
  bool vocab_only = false;
  // Tensors become one at load where they have one type and one device: a copy in memory instead of the mapped file.
  bool merge_qkv = false;      // -mqkv: query, key and value projections of a layer
  bool merge_up_gate = false;  // -muge: gate and up of the routed experts
  // -rtr: matrices that the CPU alone multiplies with get interleaved rows; the file is then read, whatever load_mode.
  bool repack = false;
  std::vector<KvOverride> kv_overrides;
  std::vector<std::string> adapters;  // files of LoRA adapters; their numbers are their places in this list
  std::vector<ControlVector> control_vectors;
  // Layers that control vectors act on, both included; nullopt: all that they have.
  std::optional<std::pair<int, int>> control_vector_layers;
};

/// How many adapters a model takes at a time.
inline constexpr std::size_t kMaxAdapters = 64;

/// A LoRA adapter that was loaded with a model.
struct AdapterInfo {
  std::string path;
  std::string task_name, prompt_prefix;  // what the file says of its use; often empty
  int rank = 0;                          // the largest of its tensors
  float alpha = 0.0f;
  int n_tensors = 0;  // of the model that it changes
  std::uint64_t bytes = 0;
};

/// Called from the loading thread with the bytes loaded so far; false cancels (Error cancelled).
using LoadProgress = std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

struct Plan;          // llama/plan.h
struct Hparams;       // src/model/hparams.h
struct ModelWeights;  // src/model/weights.h: layers' ggml::Weight by role

/// What a user may want to know about a model (/props, /v1/models, logs).
struct ModelInfo {
  std::string architecture;  // "qwen3moe"
  std::string name;          // general.name, may be empty
  std::string size_label;    // "30B.A3B", from the parameter counts
  std::string file_type;     // "Q4_K - Medium"
  std::uint64_t n_params = 0;
  std::uint64_t file_bytes = 0;  // of all tensors
  int n_layer = 0, n_embd = 0, n_vocab = 0, n_ctx_train = 0, n_expert = 0, n_expert_used = 0;
  bool is_encoder = false;          // gives embeddings only
  Pooling pooling = Pooling::none;  // what the file asks for
};

/// A loaded model: vocabulary, hyper-parameters, weights. Immutable after load(); shared by any number of Contexts on
/// the devices that it was loaded for.
class Model {
 public:
  /// Throws Error (invalid_file lists every problem with a tensor or key, expected and found; unsupported names the
  /// known families).
  /// `device` is the one that will compute: where it does not read weights in place, it gets its own copies.
  static std::unique_ptr<Model> load(const ModelParams& params, ggml::Device& device, const LoadProgress& progress);
  /// Over several devices, those of the plan in its order, as it says. Tensors that it does not name lie where their
  /// layer is.
  static std::unique_ptr<Model> load(const ModelParams& params, std::span<ggml::Device* const> devices,
                                     const Plan& plan, const LoadProgress& progress);
  /// What the headers alone say: hyper-parameters, and weights whose placement (host memory) has no bytes, in the order
  /// of the file, derived ones last. No vocabulary. Throws as load() does. This is what plans are made from.
  static std::unique_ptr<Model> outline(const ModelParams& params);
  /// Makes an outline say of each weight where a plan puts it, still without bytes.
  void place_outline(const Plan& plan);
  /// The tensors of an outline, by name, that load() makes one of where a plan puts them on the same devices.
  [[nodiscard]] std::vector<std::vector<std::string>> merge_groups() const;
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const ModelInfo& info() const;
  [[nodiscard]] const Vocab& vocab() const;
  [[nodiscard]] const ggml::gguf::Metadata& metadata() const;  // chat templates, sampling defaults
  [[nodiscard]] const Hparams& hparams() const;
  [[nodiscard]] const ModelWeights& weights() const;
  /// In the order of ModelParams::adapters; requests name them by that number.
  [[nodiscard]] const std::vector<AdapterInfo>& adapters() const;

 private:
  Model();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Names of the architectures that load, in the order of families.def.
[[nodiscard]] std::vector<std::string_view> known_architectures();

}  // namespace llama
