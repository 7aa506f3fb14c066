// The mixture rules of llama.cpp.
#include <algorithm>
#include <array>

#include "quantize/counting_mixture.h"

namespace llama {
namespace {

using std::string_view;

enum class Kind : std::uint8_t { other, head, embedding, v, k, q, attention_output, up, gate, down };

Kind kind_of_name(string_view name) {
  if (name == "output.weight") return Kind::head;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Kind::embedding;
  struct Part {
    string_view text;
    Kind kind;
  };
  constexpr Part kParts[] = {
      {"attn_qkv.weight", Kind::v}, {"attn_kv_b.weight", Kind::v}, {"attn_v.weight", Kind::v},
      {"attn_k.weight", Kind::k},   {"attn_q.weight", Kind::q},    {"attn_output.weight", Kind::attention_output},
      {"ffn_up", Kind::up},         {"ffn_gate", Kind::gate},      {"ffn_down", Kind::down}};
  for (const Part& part : kParts)
    if (name.find(part.text) != string_view::npos) return part.kind;
  return Kind::other;
}

constexpr string_view kVeryLow[] = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"};

constexpr Choice kEmbedding[] = {{"IQ1_S", "q2_k"},  {"IQ1_M", "q2_k"},  {"IQ2_XXS", "q2_k"},  {"IQ2_XS", "q2_k"},
                                 {"IQ2_S", "iq3_s"}, {"IQ2_M", "iq3_s"}, {"IQ3_XXS", "iq3_s"}, {"TQ1_0", "q4_k"},
                                 {"TQ2_0", "q4_k"},  {"Q2_0", "q4_k"}};

constexpr Choice kAttentionOutput[] = {
    {"Q2_K", "q3_k"}, {"IQ3_XXS", "iq3_s"}, {"Q3_K_M", "q4_k"}, {"Q3_K_L", "q5_k"}, {"IQ3_M", "q4_k"}};
constexpr string_view kBetterOutputWithExperts[] = {"Q2_K",   "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ3_XXS",
                                                    "IQ3_XS", "IQ3_S",  "IQ3_M",  "IQ4_NL", "IQ4_XS"};

/// V-like tensors when four heads or more share a KV head.
constexpr Choice kSharedValues[] = {{"Q2_K", "q4_k"},  {"Q2_K_S", "q4_k"}, {"IQ3_XXS", "q4_k"}, {"IQ3_XS", "q4_k"},
                                    {"IQ3_S", "q4_k"}, {"IQ4_NL", "q5_k"}, {"IQ4_XS", "q5_k"}};

class LlamaMixture final : public CountingMixture<Kind> {
 public:
  LlamaMixture(const MixRequest& request, std::span<const std::string> names)
      : CountingMixture(request,
                        static_cast<int>(std::count_if(names.begin(), names.end(), [](const std::string& name) {
                          return kind_of_name(name) == Kind::v;
                        }))) {}

 private:
  [[nodiscard]] bool low_is_small() const { return r_.file_type == "IQ2_S" || r_.file_type == "IQ2_M"; }
  [[nodiscard]] bool has_eight_experts() const { return r_.facts.n_expert == 8; }

  [[nodiscard]] Kind kind_of(const MixTensor& tensor) const override { return kind_of_name(tensor.name); }

  [[nodiscard]] string_view rule(const MixTensor& tensor, Kind kind) const override {
    if (kind == Kind::head || (kind == Kind::embedding && r_.facts.is_tied)) return head(tensor);
    if (r_.file_type == "MXFP4_MOE") return tensor.shape[2] > 1 ? "mxfp4" : "q8_0";
    if (kind == Kind::embedding) return choice_of(kEmbedding, r_.file_type);
    if (is_one_of(r_.file_type, kVeryLow)) return very_low(kind);
    switch (kind) {
      case Kind::v:
        return values();
      case Kind::k:
        if (has_eight_experts()) return "q8_0";
        [[fallthrough]];
      case Kind::q:
        return r_.file_type == "IQ3_XS" ? "iq3_xxs" : r_.file_type == "IQ3_XXS" ? "iq2_s" : "";
      case Kind::down:
        return shared_down_rule(r_.file_type, {.i = ffn_layer(tensor, kind),
                                               .n = r_.facts.n_layer,
                                               .is_falcon = r_.facts.is_falcon,
                                               .more_for_experts = has_eight_experts(),
                                               .has_importance = r_.has_importance});
      case Kind::attention_output:
        if (r_.facts.is_falcon) return r_.file_type == "Q3_K_L" ? "q4_k" : "";
        if (has_eight_experts()) return is_one_of(r_.file_type, kBetterOutputWithExperts) ? "q5_k" : "";
        return choice_of(kAttentionOutput, r_.file_type);
      case Kind::gate:
      case Kind::up: {
        const int i = ffn_layer(tensor, kind);
        const int n = r_.facts.n_layer;
        return r_.file_type == "IQ3_XS" && i >= n / 8 && i < 7 * n / 8 ? "iq3_xxs" : "";
      }
      default:
        return "";
    }
  }

  [[nodiscard]] string_view head(const MixTensor& tensor) const {
    const bool divides = tensor.shape[0] % ggml::type_info(r_.type).block_weights == 0;
    if (r_.file_type == "MXFP4_MOE" || r_.facts.is_falcon || !divides) return "q8_0";
    if (is_one_of(r_.file_type, kVeryLow) || r_.file_type == "IQ3_XXS") return "q5_k";
    return r_.file_type == "Q8_0" ? "" : "q6_k";
  }

  [[nodiscard]] string_view very_low(Kind kind) const {
    const string_view better = low_is_small() ? "iq3_s" : "q2_k";
    if (kind == Kind::v) return r_.facts.gqa >= 4 || r_.facts.n_expert >= 4 ? "q4_k" : better;
    if (kind == Kind::k && has_eight_experts()) return "q4_k";
    if (kind == Kind::down) return count(kind) < r_.facts.n_layer / 8 ? better : "";
    if (kind != Kind::attention_output) return "";
    if (has_eight_experts()) return "q5_k";
    if (r_.file_type == "IQ1_S" || r_.file_type == "IQ1_M") return "iq2_xxs";
    return low_is_small() ? "iq3_s" : "";
  }

  [[nodiscard]] string_view values() const {
    if (has_eight_experts()) return "q8_0";
    const string_view chosen = values_by_file_type();
    const ggml::TypeInfo& type = ggml::type_info(chosen.empty() ? r_.type : *ggml::type_from_name(chosen));
    if (r_.facts.is_llama2_70b && (type.id == "q3_k" || type.id == "q4_k")) return "q5_k";
    return chosen;
  }

  [[nodiscard]] string_view values_by_file_type() const {
    const string_view f = r_.file_type;
    if (f == "Q3_K_M") return count(Kind::v) < 2 ? "q5_k" : "q4_k";
    if (f == "Q3_K_L") return "q5_k";
    if (f == "IQ3_M") return "q4_k";
    if (f == "Q4_K_S") return count(Kind::v) < 4 ? "q5_k" : "";
    if (f == "Q4_K_M" || f == "Q5_K_M") return more_bits_for_values() ? "q6_k" : "";
    if (r_.facts.gqa >= 4) return choice_of(kSharedValues, f);
    if (f == "Q2_K") return "q3_k";
    if (f == "IQ3_XXS") return r_.has_importance ? "iq3_xxs" : "iq3_s";
    return "";
  }
};

}  // namespace

std::unique_ptr<Mixture> make_llama_mixture(const MixRequest& request, std::span<const std::string> names) {
  return std::make_unique<LlamaMixture>(request, names);
}

}  // namespace llama
