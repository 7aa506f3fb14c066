#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "ggml/error.h"
#include "llama/quantize.h"

namespace llama {
namespace {

constexpr MixRules kMl = MixRules::llama_cpp;
constexpr MixRules kIk = MixRules::ik_llama_cpp;

struct Row {
  std::string_view name;
  std::uint32_t number;
  std::string_view type;
  MixRules rules;
  std::string_view about;
};

// 38 is MXFP4_MOE of llama.cpp and MXFP4 of ik_llama.cpp: same number, other rules.
constexpr Row kRows[] = {
    {"F32", 0, "f32", kMl, "32 bits, no loss"},
    {"F16", 1, "f16", kMl, "16 bits"},
    {"Q4_0", 2, "q4_0", kMl, "4.5 bits, legacy"},
    {"Q4_1", 3, "q4_1", kMl, "5 bits, legacy"},
    {"Q8_0", 7, "q8_0", kMl, "8.5 bits, hardly any loss"},
    {"Q5_0", 8, "q5_0", kMl, "5.5 bits, legacy"},
    {"Q5_1", 9, "q5_1", kMl, "6 bits, legacy"},
    {"Q2_K", 10, "q2_k", kMl, "2.6 bits and mix"},
    {"Q3_K_S", 11, "q3_k", kMl, "3.4 bits"},
    {"Q3_K_M", 12, "q3_k", kMl, "3.4 bits, medium mix"},
    {"Q3_K_L", 13, "q3_k", kMl, "3.4 bits, large mix"},
    {"Q4_K_S", 14, "q4_k", kMl, "4.5 bits, small mix"},
    {"Q4_K_M", 15, "q4_k", kMl, "4.5 bits, medium mix: a good default"},
    {"Q5_K_S", 16, "q5_k", kMl, "5.5 bits"},
    {"Q5_K_M", 17, "q5_k", kMl, "5.5 bits, medium mix"},
    {"Q6_K", 18, "q6_k", kMl, "6.6 bits"},
    {"IQ2_XXS", 19, "iq2_xxs", kMl, "2.1 bits, needs an importance matrix"},
    {"IQ2_XS", 20, "iq2_xs", kMl, "2.3 bits, needs an importance matrix"},
    {"Q2_K_S", 21, "q2_k", kMl, "2.6 bits, needs an importance matrix"},
    {"IQ3_XS", 22, "iq3_s", kMl, "3.3 bits mix, needs an importance matrix"},
    {"IQ3_XXS", 23, "iq3_xxs", kMl, "3.1 bits, needs an importance matrix"},
    {"IQ1_S", 24, "iq1_s", kMl, "1.6 bits, needs an importance matrix"},
    {"IQ4_NL", 25, "iq4_nl", kMl, "4.5 bits, non-linear"},
    {"IQ3_S", 26, "iq3_s", kMl, "3.4 bits"},
    {"IQ3_M", 27, "iq3_s", kMl, "3.4 bits, medium mix"},
    {"IQ2_S", 28, "iq2_xs", kMl, "2.3 bits mix, needs an importance matrix"},
    {"IQ2_M", 29, "iq2_s", kMl, "2.6 bits mix, needs an importance matrix"},
    {"IQ4_XS", 30, "iq4_xs", kMl, "4.25 bits, non-linear"},
    {"IQ1_M", 31, "iq1_m", kMl, "1.75 bits, needs an importance matrix"},
    {"BF16", 32, "bf16", kMl, "16 bits, range of 32"},
    {"TQ1_0", 36, "tq1_0", kMl, "1.7 bits, ternary models"},
    {"TQ2_0", 37, "tq2_0", kMl, "2.1 bits, ternary models"},
    {"MXFP4_MOE", 38, "mxfp4", kMl, "experts in 4.25 bits, the rest in 8.5"},
    {"MXFP4", 38, "mxfp4", kIk, "4.25 bits"},
    {"Q1_0", 40, "q1_0", kMl, "1.1 bits, binary models"},
    {"Q2_0", 41, "q2_0", kMl, "2.25 bits"},
    {"Q6_0", 135, "q6_0", kIk, "6.5 bits"},
    {"IQ1_BN", 136, "iq1_bn", kIk, "1.6 bits, ternary models"},
    {"IQ2_BN", 137, "iq2_bn", kIk, "2 bits, ternary models"},
    {"IQ2_K", 138, "iq2_k", kIk, "2.4 bits"},
    {"IQ3_K", 139, "iq3_k", kIk, "3.4 bits"},
    {"IQ4_K", 140, "iq4_k", kIk, "4.5 bits"},
    {"IQ5_K", 141, "iq5_k", kIk, "5.5 bits"},
    {"IQ6_K", 142, "iq6_k", kIk, "6.6 bits"},
    {"IQ4_KS", 145, "iq4_ks", kIk, "4.25 bits"},
    {"IQ3_KL", 146, "iq3_k", kIk, "4 bits mix"},
    {"IQ2_KS", 147, "iq2_ks", kIk, "2.2 bits"},
    {"IQ4_KSS", 148, "iq4_kss", kIk, "4 bits"},
    {"Q8_KV", 149, "q8_kv", kIk, "8 bits, one scale per row"},
    {"IQ5_KS", 150, "iq5_ks", kIk, "5.25 bits"},
    {"IQ2_KT", 151, "iq2_kt", kIk, "2.1 bits, trellis, needs an importance matrix"},
    {"IQ3_KT", 152, "iq3_kt", kIk, "3.1 bits, trellis"},
    {"IQ4_KT", 153, "iq4_kt", kIk, "4 bits, trellis"},
    {"IQ3_KS", 154, "iq3_ks", kIk, "3.2 bits"},
    {"IQ2_KL", 155, "iq2_kl", kIk, "2.7 bits"},
    {"IQ1_KT", 156, "iq1_kt", kIk, "1.75 bits, trellis, needs an importance matrix"},
    {"Q4_0_R8", 202, "q4_0_r8", kIk, "interleaved"},
    {"Q8_0_R8", 207, "q8_0_r8", kIk, "interleaved"},
    {"Q5_0_R4", 208, "q5_0_r4", kIk, "interleaved"},
    {"Q2_K_R4", 210, "q2_k_r4", kIk, "interleaved"},
    {"Q3_K_R4", 211, "q3_k_r4", kIk, "interleaved"},
    {"Q4_K_R4", 214, "q4_k_r4", kIk, "interleaved"},
    {"Q5_K_R4", 216, "q5_k_r4", kIk, "interleaved"},
    {"Q6_K_R4", 218, "q6_k_r4", kIk, "interleaved"},
    {"IQ2_XXS_R4", 219, "iq2_xxs_r4", kIk, "interleaved, needs an importance matrix"},
    {"IQ2_XS_R4", 220, "iq2_xs_r4", kIk, "interleaved, needs an importance matrix"},
    {"IQ3_XXS_R4", 223, "iq3_xxs_r4", kIk, "interleaved"},
    {"IQ1_S_R4", 224, "iq1_s_r4", kIk, "interleaved, needs an importance matrix"},
    {"IQ4_NL_R4", 225, "iq4_nl_r4", kIk, "interleaved"},
    {"IQ3_S_R4", 226, "iq3_s_r4", kIk, "interleaved"},
    {"IQ2_M_R4", 229, "iq2_s_r4", kIk, "interleaved, needs an importance matrix"},
    {"IQ4_XS_R8", 230, "iq4_xs_r8", kIk, "interleaved"},
    {"IQ1_M_R4", 231, "iq1_m_r4", kIk, "interleaved, needs an importance matrix"},
    {"BF16_R16", 232, "bf16_r16", kIk, "interleaved"},
    {"Q6_0_R4", 335, "q6_0_r4", kIk, "interleaved"},
    {"IQ2_BN_R4", 337, "iq2_bn_r4", kIk, "interleaved, ternary models"},
    {"IQ2_K_R4", 338, "iq2_k_r4", kIk, "interleaved"},
    {"IQ3_K_R4", 339, "iq3_k_r4", kIk, "interleaved"},
    {"IQ4_K_R4", 340, "iq4_k_r4", kIk, "interleaved"},
    {"IQ5_K_R4", 341, "iq5_k_r4", kIk, "interleaved"},
    {"IQ4_KS_R4", 345, "iq4_ks_r4", kIk, "interleaved"},
    {"IQ5_KS_R4", 350, "iq5_ks_r4", kIk, "interleaved"},
    {"MXFP4_R8", 351, "mxfp4_r8", kIk, "interleaved"},
    {"Q8_KV_R8", 398, "q8_kv_r8", kIk, "interleaved"},
    {"Q8_K_R8", 399, "q8_k_r8", kIk, "interleaved"},
};

struct Alias {
  std::string_view name;
  std::string_view stands_for;
};
constexpr Alias kAliases[] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

std::vector<FileType> build() {
  std::vector<FileType> out;
  out.reserve(std::size(kRows));
  for (const Row& row : kRows) {
    const std::optional<ggml::DType> type = ggml::type_from_name(row.type);
    TANDEM_ASSERT(type.has_value(), "a file type names a tensor type that is not there");
    out.push_back({row.name, row.number, *type, row.rules, row.about});
  }
  return out;
}

std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

}  // namespace

std::span<const FileType> file_types() {
  static const std::vector<FileType> types = build();
  return types;
}

const FileType* find_file_type(std::string_view text) {
  std::string name = upper_case(text);
  for (const Alias& alias : kAliases)
    if (name == alias.name) name = alias.stands_for;
  std::uint32_t number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = failure == std::errc() && stop == text.data() + text.size();
  const std::span<const FileType> types = file_types();
  const auto found = std::find_if(types.begin(), types.end(), [&](const FileType& type) {
    return is_number ? type.number == number : type.name == name;
  });
  return found == types.end() ? nullptr : &*found;
}

}  // namespace llama
