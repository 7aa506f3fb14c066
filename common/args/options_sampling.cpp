// The sampler chain and its numbers. Every row also notes which field the user set, because the model file may bring
// defaults for those that were left alone.
#include <charconv>

#include "common/args/option.h"
#include "common/args/sampler_names.h"
#include "common/args/table.h"
#include "common/args/text_value.h"
#include "ggml/log.h"
#include "llama/sampling_ranges.h"

namespace common {
namespace {

constexpr std::string_view kSampling = "Sampling";
constexpr std::string_view kGrammar = "Grammars";

Apply given(std::string field, Apply inner) {
  return [field = std::move(field), inner = std::move(inner)](Target& target, const Argument& argument) {
    inner(target, argument);
    if (!target.settings.sampling.is_given(field)) target.settings.sampling.given.push_back(field);
  };
}

void apply_samplers(Target& target, const Argument& argument) {
  std::vector<std::string>& chain = target.settings.sampling.samplers;
  chain.clear();
  std::string name;
  for (const char c : argument.value() + ";") {
    if (c != ';') {
      name += c;
      continue;
    }
    if (const auto known = sampler_by_name(name)) {
      chain.push_back(*known);
    } else if (!name.empty()) {
      target.note(ggml::LogLevel::warn, argument.name + ": unknown sampler \"" + name + "\" is skipped");
    }
    name.clear();
  }
}

void apply_sampler_letters(Target& target, const Argument& argument) {
  std::vector<std::string>& chain = target.settings.sampling.samplers;
  chain.clear();
  for (const char letter : argument.value()) {
    if (const auto known = sampler_by_letter(letter)) {
      chain.push_back(*known);
    } else {
      target.note(ggml::LogLevel::warn, argument.name + ": unknown sampler letter \"" + letter + "\" is skipped");
    }
  }
}

void apply_seed(Target& target, const Argument& argument) {
  // -1 and 4294967295 both mean "draw one".
  target.settings.sampling.seed =
      static_cast<std::uint32_t>(to_integer(argument, argument.value(), -1, std::int64_t{4294967295}));
}

/// TOKEN_ID followed by a signed number: 15043+1, 15043-0.5, 15043-inf.
void apply_logit_bias(Target& target, const Argument& argument) {
  constexpr std::string_view kForm = "TOKEN_ID followed by + or - and a number, such as 15043+1 or 15043-inf";
  const std::string& text = argument.value();
  std::int32_t token = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), token);
  if (failure != std::errc() || token < 0 || (*end != '+' && *end != '-')) bad_value(argument, kForm);
  const char* number = *end == '+' ? end + 1 : end;
  float bias = 0;
  const auto [last, bad] = std::from_chars(number, text.data() + text.size(), bias);
  if (bad != std::errc() || last != text.data() + text.size() || bias != bias) bad_value(argument, kForm);
  if (static_cast<double>(bias) > llama::kMaxLogitBias) bad_value(argument, "a bias of at most 1e9");
  target.settings.sampling.logit_bias.emplace_back(token, bias);
}

/// The first use clears the built-in list; `none` leaves it empty.
void apply_dry_breaker(Target& target, const Argument& argument) {
  SamplingSettings& sampling = target.settings.sampling;
  if (!sampling.is_given("dry_breakers")) {
    sampling.dry_breakers.clear();
    sampling.given.emplace_back("dry_breakers");
  }
  if (argument.value() == "none") return;
  if (sampling.dry_breakers.size() == static_cast<std::size_t>(llama::kMaxDryBreakers))
    bad_value(argument, ggml::strf("at most %d breakers", llama::kMaxDryBreakers));
  sampling.dry_breakers.push_back(argument.value());
}

/// A number whose range the table of llama/sampling_ranges.h has under `field`.
template <class Get>
Apply sampling_real(const char* field, Get get) {
  return given(field, [get, &param = llama::real_param(field)](Target& target, const Argument& argument) {
    const std::optional<double> value = as_real(argument.value());
    if (!value.has_value() || !llama::allows(param, *value)) bad_value(argument, llama::range_text(param));
    get(target.settings.sampling) = static_cast<float>(*value);
  });
}

template <class Get>
Apply sampling_whole(const char* field, Get get) {
  return given(field, [get, &param = llama::whole_param(field)](Target& target, const Argument& argument) {
    const std::optional<std::int64_t> value = as_integer(argument.value());
    if (!value.has_value() || !llama::allows(param, *value)) bad_value(argument, llama::range_text(param));
    get(target.settings.sampling) = static_cast<int>(*value);
  });
}

const std::vector<Option> kChainRows = {
    option(
        {"--samplers"}, "A;B;...",
        "Samplers in their order, names separated by ; (penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, "
        "temperature, adaptive_p, infill, tfs_z).",
        given("samplers", apply_samplers))
        .initially("the first nine, in that order"),
    option({"--sampling-seq", "--sampler-seq"}, "LETTERS", "The same, one letter each.",
           given("samplers", apply_sampler_letters))
        .initially("edskypmxt"),
    option({"-s", "--seed"}, "N", "Seed of the random numbers; -1 draws one.", apply_seed).initially("-1"),
    option({"--ignore-eos"}, "", "Never choose an end token.",
           toggle([](Settings& s) -> auto& { return s.sampling.ignore_eos; }))
        .initially("off"),
    option({"--temperature", "--temp"}, "N", "Temperature; 0 or less always takes the likeliest token.",
           sampling_real(
               "temperature", [](SamplingSettings& s) -> auto& { return s.temperature; }))
        .initially("0.8"),
    option({"--top-k"}, "N", "Keep the N likeliest tokens; 0: all.",
           sampling_whole(
               "top_k", [](SamplingSettings& s) -> auto& { return s.top_k; }))
        .variable("LLAMA_ARG_TOP_K")
        .initially("40"),
    option({"--top-p"}, "N", "Keep the likeliest tokens whose probabilities add up to N; 1: all.",
           sampling_real(
               "top_p", [](SamplingSettings& s) -> auto& { return s.top_p; }))
        .initially("0.95"),
    option({"--min-p"}, "N", "Keep tokens at least N times as likely as the likeliest; 0: all.",
           sampling_real(
               "min_p", [](SamplingSettings& s) -> auto& { return s.min_p; }))
        .initially("0.05"),
    option({"--typical", "--typical-p"}, "N", "Locally typical sampling; 1: off.",
           sampling_real(
               "typical_p", [](SamplingSettings& s) -> auto& { return s.typical_p; }))
        .initially("1"),
    option({"--repeat-last-n"}, "N", "Tokens that the penalties look back; 0: off, -1: the whole context.",
           sampling_whole(
               "repeat_last_n", [](SamplingSettings& s) -> auto& { return s.penalty_last_n; }))
        .initially("64"),
    option({"--repeat-penalty"}, "N", "Penalty of repeated tokens; 1: off.",
           sampling_real(
               "repeat_penalty", [](SamplingSettings& s) -> auto& { return s.repeat_penalty; }))
        .initially("1"),
    option({"--presence-penalty"}, "N", "Penalty of tokens that occurred; 0: off.",
           sampling_real(
               "presence_penalty", [](SamplingSettings& s) -> auto& { return s.presence_penalty; }))
        .initially("0"),
    option({"--frequency-penalty"}, "N", "Penalty per occurrence; 0: off.",
           sampling_real(
               "frequency_penalty", [](SamplingSettings& s) -> auto& { return s.frequency_penalty; }))
        .initially("0"),
    option({"-l", "--logit-bias"}, "TOKEN_ID(+/-)BIAS", "Make a token likelier or less likely; repeatable.",
           apply_logit_bias)
        .list(),
};

const std::vector<Option> kFurtherRows = {
    option({"--top-nsigma", "--top-n-sigma"}, "N",
           "Keep tokens within N standard deviations of the best; 0 or less: off.",
           sampling_real(
               "top_n_sigma", [](SamplingSettings& s) -> auto& { return s.top_n_sigma; }))
        .initially("-1"),
    option({"--xtc-probability"}, "N", "Chance to leave out the likeliest tokens; 0: off.",
           sampling_real(
               "xtc_probability", [](SamplingSettings& s) -> auto& { return s.xtc_probability; }))
        .initially("0"),
    option({"--xtc-threshold"}, "N", "Probability from which XTC leaves tokens out; above 0.5: off.",
           sampling_real(
               "xtc_threshold", [](SamplingSettings& s) -> auto& { return s.xtc_threshold; }))
        .initially("0.1"),
    option({"--dry-multiplier"}, "N", "Penalty of repeated sequences (DRY); 0: off.",
           sampling_real(
               "dry_multiplier", [](SamplingSettings& s) -> auto& { return s.dry_multiplier; }))
        .initially("0"),
    option({"--dry-base"}, "N", "DRY: base of the growing penalty.",
           sampling_real(
               "dry_base", [](SamplingSettings& s) -> auto& { return s.dry_base; }))
        .initially("1.75"),
    option({"--dry-allowed-length"}, "N", "DRY: length that goes unpunished.",
           sampling_whole(
               "dry_allowed_length", [](SamplingSettings& s) -> auto& { return s.dry_allowed_length; }))
        .initially("2"),
    option({"--dry-penalty-last-n"}, "N", "DRY: tokens looked back; -1: the whole context.",
           sampling_whole(
               "dry_penalty_last_n", [](SamplingSettings& s) -> auto& { return s.dry_penalty_last_n; }))
        .initially("64"),
    option({"--dry-sequence-breaker"}, "S", "DRY: text that ends a sequence; repeatable, none for no breaker.",
           apply_dry_breaker)
        .list()
        .initially("\\n : \" *"),
    option({"--adaptive-target"}, "N", "Adaptive-p: wanted mean probability of the chosen tokens; negative: off.",
           sampling_real(
               "adaptive_target", [](SamplingSettings& s) -> auto& { return s.adaptive_target; }))
        .initially("-1"),
    option({"--adaptive-decay"}, "N", "Adaptive-p: weight of the past in the mean, at most 0.99.",
           sampling_real(
               "adaptive_decay", [](SamplingSettings& s) -> auto& { return s.adaptive_decay; }))
        .initially("0.9"),
    option({"--adaptive-updt-w-cur"}, "", "Adaptive-p: average the probabilities after its transformation.",
           toggle([](Settings& s) -> auto& { return s.sampling.adaptive_new_p; }))
        .initially("off"),
    option({"--dynatemp-range"}, "N", "Dynamic temperature: range around --temp; 0: off.",
           sampling_real(
               "dynatemp_range", [](SamplingSettings& s) -> auto& { return s.dynatemp_range; }))
        .initially("0"),
    option({"--dynatemp-exp"}, "N", "Dynamic temperature: exponent.",
           sampling_real(
               "dynatemp_exponent", [](SamplingSettings& s) -> auto& { return s.dynatemp_exponent; }))
        .initially("1"),
    option({"--mirostat"}, "0|1|2", "Mirostat 1 or 2, instead of all samplers but the temperature; 0: off.",
           sampling_whole(
               "mirostat", [](SamplingSettings& s) -> auto& { return s.mirostat; }))
        .initially("0"),
    option({"--mirostat-lr"}, "N", "Mirostat: learning rate (eta).",
           sampling_real(
               "mirostat_eta", [](SamplingSettings& s) -> auto& { return s.mirostat_lr; }))
        .initially("0.1"),
    option({"--mirostat-ent"}, "N", "Mirostat: target entropy (tau).",
           sampling_real(
               "mirostat_tau", [](SamplingSettings& s) -> auto& { return s.mirostat_ent; }))
        .initially("5"),
    option({"--tfs"}, "N", "Tail-free sampling; 1: off.",
           sampling_real(
               "tfs_z", [](SamplingSettings& s) -> auto& { return s.tfs_z; }))
        .initially("1"),
    option({"--penalize-nl"}, "", "Count the newline in the penalties.").no_effect_warning("it is always counted"),
    option({"--cfg-scale"}, "N", "Classifier-free guidance.").no_effect_warning("guidance is not available"),
    option({"--cfg-negative-prompt"}, "S", "Negative prompt of guidance.")
        .no_effect_warning("guidance is not available"),
    option({"--cfg-negative-prompt-file"}, "F", "Negative prompt of guidance.")
        .no_effect_warning("guidance is not available"),
    option({"--banned-string-file"}, "F", "Banned strings.").no_effect_warning("use --logit-bias"),
    option({"--banned-n"}, "N", "Banned strings.").no_effect_warning("use --logit-bias"),
    option({"--allowlist-unicode-rule"}, "R", "Allowed characters.").no_effect_warning("use --logit-bias"),
    option({"--allowlist-pieces"}, "S", "Allowed pieces.").no_effect_warning("use --logit-bias"),
    option({"--allowlist-keyword"}, "S", "Allowed keyword.").no_effect_warning("use --logit-bias"),
    option({"--allowlist-keyword-delay"}, "N", "Allowed keyword.").no_effect_warning("use --logit-bias"),
    option({"--expiring-logit-bias-file"}, "F", "Expiring biases.").no_effect_warning("use --logit-bias"),
};

/// The last of the four options counts.
Apply grammar_option(std::string SamplingSettings::*field, bool is_file) {
  return [=](Target& target, const Argument& argument) {
    SamplingSettings& sampling = target.settings.sampling;
    sampling.grammar.clear();
    sampling.json_schema.clear();
    std::string text = is_file ? read_text_file(argument, argument.value()) : argument.value();
    if (field == &SamplingSettings::json_schema) check_json(argument, text, "the schema");
    sampling.*field = std::move(text);
    sampling.grammar_source = argument.name + (is_file ? " " + argument.value() : "");
  };
}

const std::vector<Option> kGrammarRows = {
    option({"--grammar"}, "GBNF", "Grammar that the answer must follow; see docs/grammars.md.",
           grammar_option(&SamplingSettings::grammar, false)),
    option({"--grammar-file"}, "FNAME", "The same from a file.", grammar_option(&SamplingSettings::grammar, true)),
    option({"-j", "--json-schema"}, "SCHEMA", "JSON schema that the answer must follow; {} is any JSON object.",
           grammar_option(&SamplingSettings::json_schema, false)),
    option({"-jf", "--json-schema-file"}, "FNAME", "The same from a file.",
           grammar_option(&SamplingSettings::json_schema, true)),
};

void add(std::vector<Option>& table, const std::vector<Option>& rows, std::string_view group) {
  for (Option row : rows) {
    row.group = group;
    row.tools = kGenerators;
    table.push_back(std::move(row));
  }
}

}  // namespace

void add_sampling_options(std::vector<Option>& table) {
  add(table, kChainRows, kSampling);
  add(table, kFurtherRows, kSampling);
  add(table, kGrammarRows, kGrammar);
}

}  // namespace common
