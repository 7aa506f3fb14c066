#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/tensor.h"
#include "llama/quantize.h"

/// The rules that give some tensors of a file type another type than most: more bits where the loss hurts most.
namespace llama {

/// What the rules ask about a model. Made by read_model_facts().
struct ModelFacts {
  int n_layer = 0;
  int n_expert = 0;
  int gqa = 1;                  // heads per KV head
  bool is_falcon = false;       // its rules differ
  bool is_llama2_70b = false;   // by shape
  bool is_large_vocab = false;  // LLaMA 3's 8B or 70B, by shape and vocabulary
  bool is_tied = false;         // no output.weight: token_embd.weight is used twice
};

/// A tensor that may be quantised.
struct MixTensor {
  std::string_view name;
  ggml::Shape shape;
};

/// What a mixture is made for.
struct MixRequest {
  std::string_view file_type;
  ggml::DType type;  // of the file type
  ModelFacts facts;
  bool has_importance = false;
};

/// Chooses types by counting as it goes: choose() is called once for each tensor, in the order that sort_for() gives.
class Mixture {
 public:
  virtual ~Mixture() = default;
  [[nodiscard]] virtual ggml::DType choose(const MixTensor& tensor) = 0;
};

/// `names`: of all tensors that may be quantised.
[[nodiscard]] std::unique_ptr<Mixture> make_llama_mixture(const MixRequest& request,
                                                          std::span<const std::string> names);
[[nodiscard]] std::unique_ptr<Mixture> make_ik_mixture(const MixRequest& request, std::span<const std::string> names);

[[nodiscard]] ModelFacts read_model_facts(const ggml::gguf::File& file);
/// Number in "blk.12.attn_q.weight"; -1 for other names.
[[nodiscard]] int layer_of(std::string_view name);
/// Order of visits: llama.cpp goes by layer and then by name, ik_llama.cpp as the file does. Indices into `names`.
[[nodiscard]] std::vector<std::size_t> visiting_order(MixRules rules, std::span<const std::string> names);

/// Whether the tensor is a weight that quantising changes at all.
[[nodiscard]] bool is_quantisable(MixRules rules, std::string_view name, const ggml::Shape& shape, bool router_too);

/// The type that takes the place of `type` for a tensor whose rows or columns it does not divide; `note` then says so.
/// Throws Error(unsupported) where there is none.
[[nodiscard]] ggml::DType fit_type(MixRules rules, ggml::DType type, const MixTensor& tensor, std::string& note);
/// Whether a type is useless without an importance matrix for this tensor.
[[nodiscard]] bool needs_importance(MixRules rules, std::string_view file_type, ggml::DType type,
                                    std::string_view name);

// Shared by the two sets of rules.

/// The layers that get more bits: the first and last eighth, and every third between.
[[nodiscard]] constexpr bool use_more_bits(int i, int n) {
  return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/// File type and the type that a rule gives there.
struct Choice {
  std::string_view file_type;
  std::string_view type;
};
/// The type in the row of `file_type`; empty when there is none.
[[nodiscard]] std::string_view choice_of(std::span<const Choice> table, std::string_view file_type);
[[nodiscard]] bool is_one_of(std::string_view text, std::span<const std::string_view> list);

/// Rules that the two projects share, for the tensors of ffn_down. i of n layers; empty: the default type.
struct DownCase {
  int i, n;
  bool is_falcon;
  bool more_for_experts;  // the mixture has as many experts as its rule asks for
  bool has_importance;
};
[[nodiscard]] std::string_view shared_down_rule(std::string_view file_type, const DownCase& down);

}  // namespace llama
