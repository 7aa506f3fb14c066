#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ggml/gguf.h"
#include "llama/importance.h"
#include "llama/model.h"

namespace llama {

/// Whose rules say which tensor gets which type: the two projects differ for some file types that both know.
enum class MixRules : std::uint8_t { llama_cpp, ik_llama_cpp };

/// A row of `general.file_type`: the name a user types and what it stands for.
struct FileType {
  std::string_view name;   // "Q4_K_M"
  std::uint32_t number;    // as stored
  ggml::DType type;        // of the weights that no rule singles out
  MixRules rules;          // whose rules apply unless the user says otherwise
  std::string_view about;  // for lists
};

/// All file types, by number. The first with a number is the one that the number stands for.
[[nodiscard]] std::span<const FileType> file_types();
/// By name (in any case, "Q4_K" and its like for the medium mix) or number; nothing when unknown.
[[nodiscard]] const FileType* find_file_type(std::string_view text);

struct TypeRule {
  std::string pattern;  // regular expression, searched in the tensor's name
  ggml::DType type;
};

struct QuantizeParams {
  const FileType* file_type = nullptr;  // null: copy, no weight is changed
  std::optional<MixRules> rules;        // nothing: file_type->rules
  bool pure = false;
  bool allow_requantize = false;
  bool leave_output_tensor = false;
  bool ignore_imatrix_rules = false;
  std::optional<ggml::DType> output_type, token_embedding_type, per_layer_embedding_type, router_type;
  std::vector<TypeRule> type_rules;  // the first match counts
  std::vector<TypeRule> role_types;  // plain text in the name; they replace the mixture's choice
  std::vector<int> pruned_layers;
  bool keep_split = false;
  std::vector<KvOverride> kv_overrides;
  const ImportanceMatrix* importance = nullptr;
  std::string importance_file;                                // recorded in the output; empty: nothing is recorded
  std::vector<std::string> include_weights, exclude_weights;  // parts of names for which `importance` is (not) used
  int n_threads = 0;                                          // <= 0: as many as processors
};

/// What becomes of one tensor.
struct TensorChoice {
  std::string name;        // in the output (pruning renumbers layers)
  std::size_t source = 0;  // index into File::tensors()
  ggml::DType type = ggml::DType::f32;
  std::string note;               // why the type is not the one that was asked for; usually empty
  std::vector<float> importance;  // [columns, 1 or matrices]; empty: none
  std::uint64_t bytes_before = 0, bytes_after = 0;
};

struct QuantizePlan {
  std::vector<TensorChoice> tensors;      // in the order of the output
  std::vector<std::size_t> part_tensors;  // of split outputs; empty: one file
  ggml::gguf::Metadata metadata;
  std::vector<std::string> warnings;  // of rules and parts of names that concern no tensor
  [[nodiscard]] std::uint64_t bytes_before() const;
  [[nodiscard]] std::uint64_t bytes_after() const;
};

/// Chooses every tensor's type and builds the output's metadata; reads headers only.
/// Throws Error: invalid_argument (a rule, a layer, an override), unsupported (a quantised source without
/// allow_requantize, a type that needs an importance matrix), invalid_file.
[[nodiscard]] QuantizePlan plan_quantization(const ggml::gguf::File& file, const QuantizeParams& params);

struct QuantizeProgress {
  std::size_t tensor = 0;        // index into QuantizePlan::tensors
  std::uint64_t done_bytes = 0;  // of the output
};

/// Writes the planned model. `output`: the file, or the prefix of a split model's files. Nothing appears under a final
/// name before everything is complete. Throws Error: invalid_file naming tensor and row of a NaN or infinite weight,
/// exceeds_limit (no room on the disk), io, cancelled when `stop` was set.
void write_quantized(const ggml::gguf::File& file, const QuantizePlan& plan, const std::string& output, int n_threads,
                     const std::function<void(const QuantizeProgress&)>& progress, const std::atomic<bool>& stop);

}  // namespace llama
