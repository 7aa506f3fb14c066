#include "common/args/sampler_names.h"

#include <array>
#include <cctype>

namespace common {
namespace {

struct SamplerName {
  char letter;
  std::string_view name;
  std::array<std::string_view, 3> synonyms;  // without separators, lower case
};

constexpr std::array<SamplerName, 12> kSamplers = {{
    {'e', "penalties", {}},
    {'d', "dry", {}},
    {'s', "top_n_sigma", {"topnsigma"}},
    {'k', "top_k", {"topk"}},
    {'y', "typ_p", {"typp", "typical", "typicalp"}},
    {'p', "top_p", {"topp", "nucleus"}},
    {'m', "min_p", {"minp"}},
    {'x', "xtc", {}},
    {'t', "temperature", {"temp"}},
    {'i', "infill", {}},
    {'a', "adaptive_p", {"adaptivep", "adaptive"}},
    {'f', "tfs_z", {"tfsz", "tfs"}},
}};

}  // namespace

std::optional<std::string> sampler_by_name(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (c != '-' && c != '_' && c != ' ') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (plain == "typ") return "typ_p";
  for (const SamplerName& sampler : kSamplers) {
    if (plain == sampler.name) return std::string(sampler.name);
    for (const std::string_view synonym : sampler.synonyms)
      if (!synonym.empty() && plain == synonym) return std::string(sampler.name);
  }
  return std::nullopt;
}

std::optional<std::string> sampler_by_letter(char letter) {
  for (const SamplerName& sampler : kSamplers)
    if (sampler.letter == letter) return std::string(sampler.name);
  return std::nullopt;
}

}  // namespace common
