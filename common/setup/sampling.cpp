#include <algorithm>
#include <optional>
#include <utility>

#include "common/args/sampler_names.h"
#include "common/setup/setup.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/quoted.h"
#include "llama/sampling_ranges.h"

namespace common {
namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;
using llama::SamplerKind;

struct KindName {
  SamplerKind kind;
  std::string_view name;  // canonical, as sampler_by_name() gives it
};

constexpr KindName kNames[] = {
    {SamplerKind::penalties, "penalties"},
    {SamplerKind::dry, "dry"},
    {SamplerKind::top_n_sigma, "top_n_sigma"},
    {SamplerKind::top_k, "top_k"},
    {SamplerKind::typical_p, "typ_p"},
    {SamplerKind::top_p, "top_p"},
    {SamplerKind::min_p, "min_p"},
    {SamplerKind::tail_free, "tfs_z"},
    {SamplerKind::xtc, "xtc"},
    {SamplerKind::temperature, "temperature"},
    {SamplerKind::infill, "infill"},
    {SamplerKind::adaptive_p, "adaptive_p"},
};

/// A default in the model file: its key behind "general.sampling.", and the parameter.
struct FileDefault {
  const char* key;
  const char* param;
};
constexpr FileDefault kFileReals[] = {
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"temp", "temperature"},
    {"penalty_repeat", "repeat_penalty"},
    {"xtc_probability", "xtc_probability"},
    {"xtc_threshold", "xtc_threshold"},
    {"mirostat_tau", "mirostat_tau"},
    {"mirostat_eta", "mirostat_eta"},
};
constexpr FileDefault kFileWholes[] = {
    {"top_k", "top_k"},
    {"penalty_last_n", "repeat_last_n"},
    {"mirostat", "mirostat"},
};

/// What the file says, if that may be; else every request would fail for a value that nobody typed.
template <class Param, class Value>
bool usable(const Param& param, const std::string& key, Value value) {
  if (llama::allows(param, value)) return true;
  ggml::logf(ggml::LogLevel::warn, "%s in the model file is %g and is left out: %s is expected", key.c_str(),
             static_cast<double>(value), llama::range_text(param).c_str());
  return false;
}

/// The author's defaults in the model file, for what the user left alone.
void apply_model_defaults(const SamplingSettings& settings, const ggml::gguf::Metadata& metadata,
                          llama::SamplingParams& params) {
  const std::string prefix = "general.sampling.";
  for (const auto& [key, name] : kFileReals) {
    const llama::RealParam& param = llama::real_param(name);
    const auto value = metadata.get_f32(prefix + key);
    if (settings.is_given(name) || !value.has_value()) continue;
    if (usable(param, prefix + key, static_cast<double>(*value))) params.*param.value = *value;
  }
  for (const auto& [key, name] : kFileWholes) {
    const llama::WholeParam& param = llama::whole_param(name);
    const auto value = metadata.get_integer(prefix + key);
    if (settings.is_given(name) || !value.has_value()) continue;
    if (usable(param, prefix + key, *value)) params.*param.value = static_cast<int>(*value);
  }
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
    const std::optional<std::string> known = sampler_by_name(name);
    const auto* found = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const KindName& row) { return known && row.name == *known; });
    if (found == std::end(kNames)) {
      ggml::logf(ggml::LogLevel::warn, "sampler %s is not known and is left out", ggml::gguf::quoted(name).c_str());
    } else {
      chain.push_back(found->kind);
    }
  }
  return chain;
}

void add_tail_free(std::vector<SamplerKind>& chain) {
  if (std::find(chain.begin(), chain.end(), SamplerKind::tail_free) != chain.end()) return;
  const auto top_k = std::find(chain.begin(), chain.end(), SamplerKind::top_k);
  chain.insert(top_k == chain.end() ? chain.begin() : top_k + 1, SamplerKind::tail_free);
}

std::string_view sampler_name(SamplerKind kind) {
  for (const KindName& row : kNames) {
    if (row.kind == kind) return row.name;
  }
  return "";
}

std::vector<std::string> sampler_names_from_letters(std::string_view letters) {
  std::vector<std::string> names;
  for (const char letter : letters) {
    if (const std::optional<std::string> name = sampler_by_letter(letter)) {
      names.push_back(*name);
    } else {
      ggml::logf(ggml::LogLevel::warn, "sampler letter %s is not known and is left out",
                 ggml::gguf::quoted({&letter, 1}).c_str());
    }
  }
  return names;
}

llama::SamplingParams sampling_params(const SamplingSettings& settings, const llama::Model& model) {
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
  params.dynatemp_range = settings.dynatemp_range;
  params.dynatemp_exponent = settings.dynatemp_exponent;
  params.top_n_sigma = settings.top_n_sigma;
  params.tfs_z = settings.tfs_z;
  params.xtc_probability = settings.xtc_probability;
  params.xtc_threshold = settings.xtc_threshold;
  params.dry_multiplier = settings.dry_multiplier;
  params.dry_base = settings.dry_base;
  params.dry_allowed_length = settings.dry_allowed_length;
  params.dry_penalty_last_n = settings.dry_penalty_last_n;
  params.dry_breakers = settings.dry_breakers;
  params.mirostat = settings.mirostat;
  params.mirostat_tau = settings.mirostat_ent;
  params.mirostat_eta = settings.mirostat_lr;
  params.adaptive_target = settings.adaptive_target;
  params.adaptive_decay = settings.adaptive_decay;
  params.adaptive_new_p = settings.adaptive_new_p;
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
  if (params.tfs_z < 1.0f && !settings.is_given("samplers")) add_tail_free(params.samplers);
  return params;
}

}  // namespace common
