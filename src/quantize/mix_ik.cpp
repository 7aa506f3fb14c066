// The mixture rules of ik_llama.cpp. File types whose name ends in _R4 or _R8 follow their base type where a row says
// so.
#include <algorithm>

#include "quantize/counting_mixture.h"

namespace llama {
namespace {

using std::string_view;

enum class Kind : std::uint8_t { other, head, embedding, v, k, q, down, attention_output, qkv, gate, up };

/// The first match counts: fused attn_qkv tensors are of kind q.
Kind kind_of_name(string_view name) {
  if (name == "output.weight") return Kind::head;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Kind::embedding;
  struct Part {
    string_view text;
    Kind kind;
  };
  constexpr Part kParts[] = {{"attn_v.weight", Kind::v},
                             {"attn_k", Kind::k},
                             {"attn_q", Kind::q},
                             {"ffn_down", Kind::down},
                             {"attn_output.weight", Kind::attention_output},
                             {"ffn_gate", Kind::gate},
                             {"ffn_up", Kind::up}};
  for (const Part& part : kParts)
    if (name.find(part.text) != string_view::npos) return part.kind;
  return Kind::other;
}

bool holds(string_view name, string_view part) {
  return name.find(part) != string_view::npos;
}

constexpr string_view kVeryLow[] = {"IQ1_S", "IQ1_M",  "IQ2_XXS",    "IQ2_XS",    "IQ2_S",
                                    "IQ2_M", "IQ2_KS", "IQ2_XXS_R4", "IQ2_XS_R4", "IQ2_M_R4"};
constexpr string_view kTrellisScheme[] = {"IQ2_KT", "IQ1_S_R4", "IQ1_M_R4"};

/// Heads of small file types: Q5_K, or IQ4_K where the embedding doubles as head.
constexpr string_view kLowHead[] = {"IQ1_S",  "IQ1_M",    "IQ2_XXS",  "IQ2_XS",     "IQ2_S",    "IQ2_M",    "IQ3_XXS",
                                    "IQ2_K",  "IQ3_K",    "IQ2_KS",   "IQ3_KS",     "IQ2_KL",   "IQ1_KT",   "IQ2_KT",
                                    "IQ3_KT", "IQ2_K_R4", "IQ3_K_R4", "IQ3_XXS_R4", "IQ1_S_R4", "IQ1_M_R4", "IQ2_M_R4"};
constexpr string_view kTiedHead5[] = {"IQ3_S",  "IQ3_M",   "IQ3_KL",   "IQ4_XS",
                                      "IQ4_KS", "IQ4_KSS", "IQ3_S_R4", "IQ4_KS_R4"};
constexpr string_view kKeepHead[] = {"q8_0", "q8_0_r8", "iq6_k", "q6_k_r4", "q8_k_r8", "q8_kv", "q8_kv_r8"};

constexpr Choice kEmbedding[] = {
    {"IQ1_S", "q2_k"},     {"IQ1_M", "q2_k"},      {"IQ2_XXS", "q2_k"},   {"IQ2_XS", "q2_k"},      {"IQ1_S_R4", "q2_k"},
    {"IQ1_M_R4", "q2_k"},  {"IQ2_XXS_R4", "q2_k"}, {"IQ2_XS_R4", "q2_k"}, {"IQ2_S", "iq3_s"},      {"IQ2_M", "iq3_s"},
    {"IQ2_M_R4", "iq3_s"}, {"IQ3_XXS", "iq3_s"},   {"IQ3_KT", "iq3_s"},   {"IQ3_XXS_R4", "iq3_k"}, {"IQ1_BN", "iq4_nl"},
    {"IQ2_BN", "iq4_nl"},  {"IQ2_BN_R4", "iq4_nl"}};

/// attn_v by heads per KV head: at least four, at least two, fewer. Empty: no rule.
struct ValueRow {
  string_view file_type, four, two, fewer;
};
constexpr ValueRow kValues[] = {{"Q2_K", "q4_k", "q3_k", "q3_k"},
                                {"Q2_K_R4", "q4_k_r4", "q3_k_r4", "q3_k_r4"},
                                {"Q2_K_S", "q4_k", "", ""},
                                {"IQ2_K", "iq4_k", "iq4_k", "iq3_k"},
                                {"IQ2_K_R4", "iq4_k_r4", "iq4_k_r4", "iq3_k_r4"},
                                {"IQ3_XXS_R4", "q4_k_r4", "iq3_k_r4", "iq3_k_r4"},
                                {"IQ3_KT", "iq4_k", "iq3_k", "iq3_k"},
                                {"IQ4_KT", "iq5_k", "iq4_k", "iq4_k"},
                                {"IQ3_XS", "iq4_k", "iq4_k", ""},
                                {"IQ3_S", "iq4_k", "iq4_k", ""},
                                {"IQ3_K", "iq4_k", "iq4_k", ""},
                                {"IQ3_S_R4", "iq4_k_r4", "iq4_k_r4", ""},
                                {"IQ3_K_R4", "iq4_k_r4", "iq4_k_r4", ""},
                                {"IQ3_KS", "iq4_ks", "iq4_ks", ""},
                                {"IQ2_KL", "iq4_ks", "iq4_ks", ""},
                                {"IQ3_KL", "iq5_k", "iq5_k", "iq4_k"},
                                {"IQ3_M", "iq5_k", "iq5_k", "iq4_k"},
                                {"IQ4_NL", "iq5_k", "iq5_k", ""},
                                {"IQ4_XS", "iq5_k", "iq5_k", ""},
                                {"IQ4_NL_R4", "iq5_k", "iq5_k", ""},
                                {"IQ4_XS_R8", "iq5_k", "iq5_k", ""},
                                {"IQ4_KS", "iq5_k", "iq5_k", ""},
                                {"IQ4_KSS", "iq5_k", "iq5_k", ""},
                                {"IQ4_K", "iq5_k", "iq5_k", ""},
                                {"IQ4_K_R4", "iq5_k_r4", "iq5_k_r4", ""},
                                {"IQ4_KS_R4", "iq5_k_r4", "iq5_k_r4", ""},
                                {"Q3_K_L", "q5_k", "q5_k", "q5_k"}};

/// With four heads or more per KV head and no other rule attn_v goes one step up. "type": its next.
constexpr Choice kStepUp[] = {{"q2_k", "iq3_s"},          {"iq3_xxs", "iq3_s"},    {"q3_k", "q4_k"},
                              {"iq3_s", "q4_k"},          {"iq3_k", "iq4_k"},      {"iq3_ks", "iq4_ks"},
                              {"iq2_kl", "iq4_ks"},       {"q4_k", "q5_k"},        {"iq4_xs", "q5_k"},
                              {"iq4_nl", "q5_k"},         {"iq4_k", "iq5_k"},      {"iq4_ks", "iq5_k"},
                              {"q5_k", "q6_k"},           {"iq5_k", "iq6_k"},      {"iq5_ks", "iq6_k"},
                              {"iq4_nl_r4", "q5_k"},      {"iq4_xs_r8", "q5_k"},   {"q2_k_r4", "iq3_k_r4"},
                              {"iq3_xxs_r4", "iq3_k_r4"}, {"iq3_s_r4", "q4_k_r4"}, {"q3_k_r4", "q4_k_r4"}};

constexpr string_view kBetterOutputWithExperts[] = {
    "Q2_K",    "Q3_K_S",  "Q3_K_M",     "Q4_K_S",   "Q4_K_M",   "IQ3_XXS",   "IQ3_XS",    "IQ3_S",
    "IQ3_M",   "IQ4_NL",  "IQ4_XS",     "IQ2_K",    "IQ3_K",    "IQ3_KL",    "IQ3_KS",    "IQ3_KT",
    "IQ4_K",   "IQ4_KS",  "IQ4_KSS",    "IQ5_KS",   "Q4_K_R4",  "IQ4_XS_R8", "IQ4_KS_R4", "IQ2_K_R4",
    "Q2_K_R4", "Q3_K_R4", "IQ3_XXS_R4", "IQ3_S_R4", "IQ3_K_R4", "IQ4_NL_R4", "IQ4_K_R4"};
constexpr Choice kAttentionOutput[] = {{"Q2_K", "q3_k"},         {"IQ3_XXS", "iq3_s"},       {"Q3_K_M", "q4_k"},
                                       {"Q3_K_L", "q5_k"},       {"IQ3_M", "iq4_k"},         {"IQ2_K", "iq3_k"},
                                       {"IQ2_K_R4", "iq3_k_r4"}, {"IQ3_XXS_R4", "iq3_k_r4"}, {"IQ3_KL", "iq4_ks"}};

string_view in_row(const ValueRow& row, int gqa) {
  return gqa >= 4 ? row.four : gqa >= 2 ? row.two : row.fewer;
}

class IkMixture final : public CountingMixture<Kind> {
 public:
  IkMixture(const MixRequest& request, std::span<const std::string> names)
      : CountingMixture(request,
                        static_cast<int>(std::count_if(names.begin(), names.end(), [](const std::string& name) {
                          return holds(name, "attn_v.weight") || holds(name, "attn_qkv.weight");
                        }))) {}

 private:
  [[nodiscard]] Kind kind_of(const MixTensor& tensor) const override { return kind_of_name(tensor.name); }

  [[nodiscard]] string_view rule(const MixTensor& tensor, Kind kind) const override {
    if (kind == Kind::head || (kind == Kind::embedding && r_.facts.is_tied)) return head(tensor);
    if (kind == Kind::embedding) return choice_of(kEmbedding, r_.file_type);
    if (is_one_of(r_.file_type, kTrellisScheme)) return trellis_scheme(tensor, kind);
    if (is_one_of(r_.file_type, kVeryLow)) return very_low(tensor, kind);
    const bool many_experts = r_.facts.n_expert >= 4;
    switch (kind) {
      case Kind::v:
        return many_experts ? "q8_0" : values();
      case Kind::k:
        return many_experts ? "q8_0" : keys();
      case Kind::q:
        if (const string_view large = large_vocab_query(); !large.empty()) return large;
        return keys();
      case Kind::down:
        return down(ffn_layer(tensor, kind));
      case Kind::attention_output:
        return attention_output(many_experts);
      case Kind::gate:
      case Kind::up:
        return gate_or_up(ffn_layer(tensor, kind));
      default:
        return "";
    }
  }

  [[nodiscard]] string_view head(const MixTensor& tensor) const {
    constexpr std::int64_t kBlock = 256;
    if (r_.facts.is_falcon || tensor.shape[0] % kBlock != 0) return "q8_0";
    const bool tied = r_.facts.is_tied;
    if (r_.file_type == "IQ2_XXS_R4" || r_.file_type == "IQ2_XS_R4") return tied ? "iq4_k_r4" : "q5_k_r4";
    if (is_one_of(r_.file_type, kLowHead)) return tied ? "iq4_k" : "q5_k";
    if (tied && is_one_of(r_.file_type, kTiedHead5)) return "iq5_k";
    return is_one_of(ggml::type_info(r_.type).id, kKeepHead) ? "" : "q6_k";
  }

  /// IQ2_KT, and with interleaved types IQ1_S_R4 and IQ1_M_R4.
  [[nodiscard]] string_view trellis_scheme(const MixTensor& tensor, Kind kind) const {
    const bool r4 = r_.file_type != "IQ2_KT";
    const int experts = r_.facts.n_expert;
    const string_view name = tensor.name;
    const auto pick = [&](string_view plain, string_view interleaved) { return r4 ? interleaved : plain; };
    if (kind == Kind::v) {
      if (experts >= 4 || r_.facts.gqa >= 4) return pick("iq4_k", "iq4_k_r4");
      return r_.facts.gqa >= 2 ? pick("iq3_k", "iq3_k_r4") : pick("q2_k", "q2_k_r4");
    }
    if (experts >= 8 && kind == Kind::k) return pick("q4_k", "q4_k_r4");
    const bool is_ffn = holds(name, "ffn_down") || holds(name, "ffn_gate") || holds(name, "ffn_up");
    if (experts >= 8 && is_ffn && layer_of(name) == 0) return pick("iq3_k", "iq3_k_r4");
    if (experts >= 8 && kind == Kind::q) return pick("q4_k", "q4_k_r4");
    if (holds(name, "attn_qkv.weight")) return pick("iq3_k", "iq2_k_r4");
    if (holds(name, "_shexp.weight")) return pick("iq4_k", "iq4_k_r4");
    if (kind == Kind::down) {
      return ffn_layer(tensor, kind) < r_.facts.n_layer / 8 ? pick("iq3_k", "q2_k_r4") : "";
    }
    if (kind != Kind::attention_output) return "";
    return experts >= 4 ? pick("q5_k", "q5_k_r4") : pick("iq3_k", "iq2_k_r4");
  }

  [[nodiscard]] string_view very_low(const MixTensor& tensor, Kind kind) const {
    const bool small = r_.file_type == "IQ2_S" || r_.file_type == "IQ2_M" || r_.file_type == "IQ2_M_R4";
    const bool tiny = r_.file_type == "IQ1_S" || r_.file_type == "IQ1_M";
    const int experts = r_.facts.n_expert;
    const string_view better = small ? "iq3_s" : "q2_k";
    if (kind == Kind::v) {
      if (r_.facts.gqa >= 4 || experts >= 4) return "iq4_k";
      return r_.facts.gqa >= 2 || experts >= 2 ? "iq3_k" : better;
    }
    if (experts >= 8 && (kind == Kind::k || kind == Kind::q)) return "q4_k";
    if (holds(tensor.name, "attn_qkv.weight")) return small ? "iq3_xxs" : "iq2_k";
    if (kind == Kind::down) return count(kind) < r_.facts.n_layer / 8 ? better : "";
    if (kind != Kind::attention_output) return "";
    return experts >= 4 ? "q5_k" : tiny ? "iq2_k" : small ? "iq3_s" : "";
  }

  [[nodiscard]] string_view values() const {
    const string_view f = r_.file_type;
    const int gqa = r_.facts.gqa;
    if (r_.facts.is_llama2_70b) {
      const string_view type = ggml::type_info(r_.type).id;
      if (type == "q3_k" || type == "q4_k" || type == "iq3_k") return type == "iq3_k" ? "iq5_k" : "q5_k";
    }
    if (f == "IQ3_XXS" && gqa < 4) return gqa >= 2 ? "iq3_k" : r_.has_importance ? "iq3_xxs" : "iq3_s";
    if (f == "IQ3_XXS") return "q4_k";
    if (f == "Q3_K_M") return count(Kind::v) < 2 ? "q5_k" : "q4_k";
    if (f == "Q4_K_M" || f == "Q5_K_M") {
      if (more_bits_for_values()) return "q6_k";
    } else if (f == "Q4_K_S" || f == "Q4_K_R4") {
      if (count(Kind::v) < 4) return "q5_k";
    } else if (f == "Q5_K_S" || f == "IQ5_K" || f == "IQ5_KS") {
      return r_.facts.is_large_vocab ? (f == "Q5_K_S" ? "q6_k" : "iq6_k") : "";
    } else {
      for (const ValueRow& row : kValues)
        if (row.file_type == f && !in_row(row, gqa).empty()) return in_row(row, gqa);
    }
    return gqa >= 4 ? choice_of(kStepUp, ggml::type_info(r_.type).id) : "";
  }

  [[nodiscard]] string_view keys() const {
    return r_.file_type == "IQ3_XS" ? "iq3_xxs" : r_.file_type == "IQ3_XXS" ? "iq2_s" : "";
  }

  [[nodiscard]] string_view large_vocab_query() const {
    constexpr Choice kRows[] = {{"Q5_K_S", "q4_k"}, {"IQ5_K", "iq4_k"}, {"IQ5_KS", "iq4_ks"}};
    return r_.facts.is_large_vocab ? choice_of(kRows, r_.file_type) : "";
  }

  [[nodiscard]] string_view down(int i) const {
    const string_view f = r_.file_type;
    const int n = r_.facts.n_layer;
    const bool first_eighth = i < n / 8;
    const bool many_experts = r_.facts.n_expert >= 4;
    const bool without = !r_.has_importance;
    if (f == "IQ3_M") return first_eighth || (many_experts && use_more_bits(i, n)) ? "iq4_k" : "";
    if (f == "IQ3_KL") return use_more_bits(i, n) ? "iq4_ks" : "iq3_k";
    if (f == "IQ3_KT") return without ? (first_eighth ? "iq4_k" : "iq3_k") : "";
    if (f == "Q4_0_R8") return first_eighth && !without ? "iq4_nl_r4" : "";
    if (f == "Q2_K_R4") return first_eighth ? "q4_k_r4" : "";
    if (f == "Q4_K_R4") return first_eighth && !r_.facts.is_falcon ? "q5_k" : "";
    if (f == "IQ3_XXS_R4") return without ? (first_eighth ? "q4_k_r4" : "q3_k_r4") : "";
    if (f == "IQ4_KS" || f == "IQ4_KSS" || f == "IQ4_XS_R8" || f == "IQ4_NL_R4")
      return first_eighth && without ? "q5_k" : "";
    if (f == "IQ4_KS_R4") return first_eighth && without ? "q5_k_r4" : "";
    return shared_down_rule(f, {.i = i,
                                .n = n,
                                .is_falcon = r_.facts.is_falcon,
                                .more_for_experts = many_experts,
                                .has_importance = r_.has_importance});
  }

  [[nodiscard]] string_view attention_output(bool many_experts) const {
    const string_view f = r_.file_type;
    if (r_.facts.is_falcon) return f == "Q3_K_L" ? "q4_k" : "";
    if (many_experts) {
      if (f == "IQ2_KL") return "iq4_ks";
      return is_one_of(f, kBetterOutputWithExperts) ? "q5_k" : "";
    }
    if (f == "IQ3_KT") return r_.facts.gqa >= 4 ? "iq3_k" : "";
    return choice_of(kAttentionOutput, f);
  }

  [[nodiscard]] string_view gate_or_up(int i) const {
    const int n = r_.facts.n_layer;
    if (r_.file_type == "IQ3_XS" && i >= n / 8 && i < 7 * n / 8) return "iq3_xxs";
    return r_.file_type == "IQ3_KL" && use_more_bits(i, n) ? "iq4_ks" : "";
  }
};

}  // namespace

std::unique_ptr<Mixture> make_ik_mixture(const MixRequest& request, std::span<const std::string> names) {
  return std::make_unique<IkMixture>(request, names);
}

}  // namespace llama
