// Which tensors are quantised, and what happens to those whose shape does not suit a type.
#include <array>

#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/quoted.h"
#include "quantize/mixture.h"

namespace llama {
namespace {

using std::string_view;

bool holds_any(string_view name, std::span<const string_view> parts) {
  for (const string_view part : parts)
    if (name.find(part) != string_view::npos) return true;
  return false;
}

constexpr string_view kNeverBoth[] = {"_norm.weight", "ssm_conv1d", "attn_rel_b.weight", "position_embd.weight",
                                      "token_types.weight"};
constexpr string_view kNeverLlama[] = {"ffn_gate_tid2eid.weight",
                                       "altup",
                                       "laurel",
                                       "per_layer_model_proj",
                                       "shortconv.conv.weight",
                                       "indexer.k_proj.weight",
                                       "indexer.q_proj.weight",
                                       "time_mix_first.weight",
                                       "time_mix_w0.weight",
                                       "time_mix_w1.weight",
                                       "time_mix_w2.weight",
                                       "time_mix_v0.weight",
                                       "time_mix_v1.weight",
                                       "time_mix_v2.weight",
                                       "time_mix_a0.weight",
                                       "time_mix_a1.weight",
                                       "time_mix_a2.weight",
                                       "time_mix_g1.weight",
                                       "time_mix_g2.weight",
                                       "time_mix_decay_w1.weight",
                                       "time_mix_decay_w2.weight",
                                       "time_mix_lerp_fused.weight",
                                       ".position_embd",
                                       "sam.pos_embd",
                                       "sam.neck.",
                                       "sam.net_",
                                       ".rel_pos",
                                       ".patch_embd",
                                       ".patch_merger",
                                       "a.rvq.codebook",
                                       "mm.a.code_embd"};
constexpr string_view kNeverIk[] = {"ssm_x.weight", "ssm_dt.weight"};

/// llama.cpp's replacements, and what ik_llama.cpp's differ in.
constexpr Choice kFallbackLlama[] = {
    {"iq1_s", "iq4_nl"}, {"iq1_m", "iq4_nl"},   {"iq2_xxs", "iq4_nl"}, {"iq2_xs", "iq4_nl"},
    {"iq2_s", "iq4_nl"}, {"iq3_xxs", "iq4_nl"}, {"iq3_s", "iq4_nl"},   {"iq4_xs", "iq4_nl"},
    {"q2_k", "q4_0"},    {"q3_k", "q4_0"},      {"tq1_0", "q4_0"},     {"tq2_0", "q4_0"},
    {"q2_0", "q4_0"},    {"q4_k", "q5_0"},      {"q5_k", "q5_1"},      {"q6_k", "q8_0"}};
constexpr Choice kFallbackIk[] = {
    {"q2_k", "iq4_nl"},   {"q3_k", "iq4_nl"},   {"iq2_k", "iq4_nl"},  {"iq2_ks", "iq4_nl"},  {"iq2_kl", "iq4_nl"},
    {"iq3_k", "iq4_nl"},  {"iq3_ks", "iq4_nl"}, {"iq4_ks", "iq4_nl"}, {"iq4_kss", "iq4_nl"}, {"iq1_kt", "iq4_nl"},
    {"iq2_kt", "iq4_nl"}, {"iq3_kt", "iq4_nl"}, {"iq4_kt", "iq4_nl"}, {"iq4_k", "q5_0"},     {"iq5_ks", "q5_0"},
    {"q5_k", "q6_0"},     {"iq5_k", "q6_0"},    {"iq6_k", "q8_0"},    {"q8_k_r8", "q8_0"},   {"q8_k_r16", "q8_0"}};

/// "q4_k_r4" without its ending.
string_view base_name(string_view id) {
  const std::size_t at = id.rfind("_r");
  return at == string_view::npos ? id : id.substr(0, at);
}

string_view fallback_of(MixRules rules, string_view id) {
  const bool ik = rules == MixRules::ik_llama_cpp;
  for (const string_view name : {id, base_name(id)}) {
    // A type of ik_llama.cpp that --custom-q asks for has its fallback under either set of rules.
    for (const bool second : {false, true}) {
      const string_view found = ik != second ? choice_of(kFallbackIk, name) : choice_of(kFallbackLlama, name);
      if (!found.empty()) return found;
    }
  }
  return {};
}

bool row_fits(ggml::DType type, const MixTensor& tensor) {
  return tensor.shape[0] % ggml::type_info(type).block_weights == 0;
}

}  // namespace

bool is_quantisable(MixRules rules, string_view name, const ggml::Shape& shape, bool router_too) {
  if (!name.ends_with("weight") || shape.dims() < 2 || holds_any(name, kNeverBoth)) return false;
  if (name.find("ffn_gate_inp.weight") != string_view::npos) return router_too;
  return rules == MixRules::llama_cpp ? !holds_any(name, kNeverLlama) : !holds_any(name, kNeverIk);
}

ggml::DType fit_type(MixRules rules, ggml::DType type, const MixTensor& tensor, std::string& note) {
  const ggml::DType asked = type;
  const std::string shape = tensor.shape.text();
  if (!row_fits(type, tensor)) {
    const string_view next = fallback_of(rules, ggml::type_info(type).id);
    if (next.empty()) {
      throw ggml::Error(ggml::ErrorCode::unsupported,
                        ggml::strf("%s: rows of %lld do not divide into blocks of %d, as type %s has them",
                                   ggml::gguf::quoted(tensor.name).c_str(), static_cast<long long>(tensor.shape[0]),
                                   ggml::type_info(type).block_weights, std::string(ggml::type_info(type).id).c_str()),
                        "choose another type for it with --tensor-type");
    }
    type = *ggml::type_from_name(next);
    if (!row_fits(type, tensor)) type = ggml::DType::f16;
  }
  const int together = ggml::type_info(type).rows_per_group;
  // Rows of an embedding are looked up singly.
  const bool looked_up = tensor.name == "token_embd.weight" || tensor.name == "per_layer_token_embd.weight";
  if (together > 1 && (looked_up || tensor.shape[1] % together != 0)) {
    const string_view id = ggml::type_info(type).id;
    const string_view base = id.starts_with("q8_k_r") ? string_view("q8_0") : base_name(id);
    type = *ggml::type_from_name(base);
  }
  if (type != asked) {
    note = ggml::strf("%s does not divide into %s", shape.c_str(), std::string(ggml::type_info(asked).id).c_str());
    if (looked_up && together > 1) note = "rows are looked up singly";
  }
  return type;
}

bool needs_importance(MixRules rules, string_view file_type, ggml::DType type, string_view name) {
  if (name == "token_embd.weight" || name == "output.weight" || name == "per_layer_token_embd.weight") return false;
  constexpr string_view kAlways[] = {"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s"};
  constexpr string_view kIk[] = {"iq1_kt", "iq2_kt"};
  const string_view id = base_name(ggml::type_info(type).id);
  if (is_one_of(id, kAlways)) return true;
  if (id == "q2_k") return file_type == "Q2_K_S";
  if (id == "iq3_xxs") return rules == MixRules::llama_cpp;
  return is_one_of(id, kIk);
}

}  // namespace llama
