#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "common/setup/setup.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace common {
namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;
using llama::SamplerKind;

struct SamplerName {
  char letter;
  std::string_view name;                    // as --samplers and the API print it
  std::array<std::string_view, 4> aliases;  // without '-', '_' and in lower case
  std::optional<SamplerKind> kind;          // nothing: a sampler of later versions
};

constexpr std::array<SamplerName, 11> kSamplers{{
    {'e', "penalties", {"penalties"}, SamplerKind::penalties},
    {'d', "dry", {"dry"}, std::nullopt},
    {'s', "top_n_sigma", {"topnsigma"}, std::nullopt},
    {'k', "top_k", {"topk"}, SamplerKind::top_k},
    {'y', "typ_p", {"typp", "typical", "typicalp", "typ"}, SamplerKind::typical_p},
    {'p', "top_p", {"topp", "nucleus"}, SamplerKind::top_p},
    {'m', "min_p", {"minp"}, SamplerKind::min_p},
    {'x', "xtc", {"xtc"}, std::nullopt},
    {'t', "temperature", {"temperature", "temp"}, SamplerKind::temperature},
    {'i', "infill", {"infill"}, std::nullopt},
    {'a', "adaptive_p", {"adaptivep"}, std::nullopt},
}};

std::string squeezed(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '-' && c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

const SamplerName* find_sampler(std::string_view name) {
  const std::string wanted = squeezed(name);
  for (const SamplerName& sampler : kSamplers) {
    for (const std::string_view alias : sampler.aliases) {
      if (!alias.empty() && alias == wanted) return &sampler;
    }
  }
  return nullptr;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::unsupported, what + " is not available in this version", "leave it at its default");
}

/// The author's defaults in the model file, for what the user left alone.
void apply_model_defaults(const SamplingSettings& settings, const ggml::gguf::Metadata& metadata,
                          llama::SamplingParams& params) {
  const auto number = [&](const char* key, const char* field, auto& target) {
    if (settings.is_given(field)) return;
    if (const auto value = metadata.get_f32(std::string("general.sampling.") + key)) target = *value;
  };
  const auto integer = [&](const char* key, const char* field, int& target) {
    if (settings.is_given(field)) return;
    if (const auto value = metadata.get_integer(std::string("general.sampling.") + key))
      target = static_cast<int>(*value);
  };
  integer("top_k", "top_k", params.top_k);
  number("top_p", "top_p", params.top_p);
  number("min_p", "min_p", params.min_p);
  number("temp", "temperature", params.temperature);
  integer("penalty_last_n", "penalty_last_n", params.penalty_last_n);
  number("penalty_repeat", "repeat_penalty", params.repeat_penalty);
  if (settings.is_given("samplers")) return;
  if (const auto sequence = metadata.get_string("general.sampling.sequence")) {
    std::vector<std::string> names;
    std::string name;
    for (const char c : std::string(*sequence) + ";") {
      if (c != ';') {
        name += c;
      } else if (!name.empty()) {
        names.push_back(std::exchange(name, {}));
      }
    }
    params.samplers = sampler_chain(names);
  }
}

}  // namespace

std::vector<SamplerKind> sampler_chain(const std::vector<std::string>& names) {
  std::vector<SamplerKind> chain;
  for (const std::string& name : names) {
    const SamplerName* sampler = find_sampler(name);
    if (sampler == nullptr) {
      ggml::logf(ggml::LogLevel::warn, "sampler '%s' is not known and is left out", name.c_str());
    } else if (sampler->kind.has_value()) {
      chain.push_back(*sampler->kind);
    }
  }
  return chain;
}

std::string_view sampler_name(SamplerKind kind) {
  for (const SamplerName& sampler : kSamplers) {
    if (sampler.kind == kind) return sampler.name;
  }
  return "";
}

std::vector<std::string> sampler_names_from_letters(std::string_view letters) {
  std::vector<std::string> names;
  for (const char letter : letters) {
    const auto* found =
        std::find_if(kSamplers.begin(), kSamplers.end(), [&](const SamplerName& s) { return s.letter == letter; });
    if (found == kSamplers.end()) {
      ggml::logf(ggml::LogLevel::warn, "sampler letter '%c' is not known and is left out", letter);
    } else {
      names.emplace_back(found->name);
    }
  }
  return names;
}

llama::SamplingParams sampling_params(const SamplingSettings& settings, const llama::Model& model) {
  if (settings.mirostat != 0) refuse(strf("--mirostat %d", settings.mirostat));
  if (settings.dry_multiplier != 0.0f) refuse("--dry-multiplier");
  if (settings.xtc_probability > 0.0f) refuse("--xtc-probability");
  if (settings.top_n_sigma > 0.0f) refuse("--top-n-sigma");
  if (settings.dynatemp_range > 0.0f) refuse("--dynatemp-range");
  if (settings.tfs_z != 1.0f) refuse("--tfs");
  if (settings.adaptive_target >= 0.0f) refuse("--adaptive-target");
  llama::SamplingParams params;
  params.seed = settings.seed;
  params.temperature = settings.temperature;
  params.top_k = settings.top_k;
  params.top_p = settings.top_p;
  params.min_p = settings.min_p;
  params.typical_p = settings.typical_p;
  params.penalty_last_n = settings.penalty_last_n;
  params.repeat_penalty = settings.repeat_penalty;
  params.frequency_penalty = settings.frequency_penalty;
  params.presence_penalty = settings.presence_penalty;
  params.ignore_eos = settings.ignore_eos;
  for (const auto& [token, bias] : settings.logit_bias) {
    if (!model.vocab().contains(token)) {
      throw Error(ErrorCode::invalid_argument, strf("--logit-bias: token %d is outside the vocabulary (%d tokens)",
                                                    token, model.vocab().n_tokens()));
    }
    params.logit_bias.emplace_back(token, bias);
  }
  params.samplers = sampler_chain(settings.samplers);
  apply_model_defaults(settings, model.metadata(), params);
  return params;
}

}  // namespace common
