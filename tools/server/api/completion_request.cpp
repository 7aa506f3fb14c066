#include "api/completion_request.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "api/adapters.h"
#include "api/grammar_fields.h"
#include "common/setup/setup.h"
#include "ggml/log.h"
#include "llama/sampling_ranges.h"

namespace server {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

constexpr std::size_t kMaxPrompts = 2048;  // of one request: each waits in the queue with a copy of all its settings
constexpr std::int64_t kIntMax = std::numeric_limits<int>::max();
// Lists that a request may be long with: each entry is kept, echoed and looked at for every token.
constexpr std::size_t kMaxSamplers = 64;
constexpr std::size_t kMaxStrings = 1024;
constexpr std::size_t kMaxStopBytes = 64 * 1024;                   // of all stop strings together
constexpr std::size_t kMaxSettingsBytes = std::size_t{256} << 20;  // of all answers of a request together

void read_samplers(const Fields& fields, llama::SamplingParams& sampling) {
  const Json* value = fields.find("samplers");
  if (value == nullptr) {
    if (sampling.tfs_z < 1.0f && fields.find("tfs_z") != nullptr) common::add_tail_free(sampling.samplers);
    return;
  }
  std::vector<std::string> names;
  if (value->is_string()) {
    check_count("samplers", value->get_ref<const std::string&>().size(), kMaxSamplers, "letters");
    names = common::sampler_names_from_letters(value->get<std::string>());
  } else if (value->is_array()) {
    check_count("samplers", value->size(), kMaxSamplers, "names");
    for (const Json& name : *value) {
      if (!name.is_string()) bad_field("samplers", "names of samplers", name);
      names.push_back(name.get<std::string>());
    }
  } else {
    bad_field("samplers", "an array of names or a string of letters", *value);
  }
  sampling.samplers = common::sampler_chain(names);
  check_count("samplers", sampling.samplers.size(), ggml::kMaxSampleStages, "samplers");
}

void read_breakers(const Fields& fields, llama::SamplingParams& sampling) {
  const Json* value = fields.find("dry_sequence_breakers");
  if (value == nullptr) return;
  if (!value->is_array() || value->empty()) bad_field("dry_sequence_breakers", "a non-empty array of strings", *value);
  check_count("dry_sequence_breakers", value->size(), static_cast<std::size_t>(llama::kMaxDryBreakers), "strings");
  sampling.dry_breakers.clear();
  for (const Json& breaker : *value) {
    if (!breaker.is_string()) bad_field("dry_sequence_breakers", "strings", breaker);
    sampling.dry_breakers.push_back(breaker.get<std::string>());
  }
}

/// All numbers, each in its range of llama/sampling_ranges.h.
void read_sampling_numbers(const Fields& fields, llama::SamplingParams& sampling) {
  for (const llama::RealParam& param : llama::real_params()) {
    const Json* value = fields.find(param.name);
    if (value == nullptr) continue;
    if (!value->is_number() || !llama::allows(param, value->get<double>()))
      bad_field(param.name, llama::range_text(param), *value);
    // A base below 1 asks for the default.
    if (param.name == "dry_base" && value->get<double>() < 1) continue;
    sampling.*param.value = static_cast<float>(value->get<double>());
  }
  for (const llama::WholeParam& param : llama::whole_params()) {
    const Json* value = fields.find(param.name);
    if (value == nullptr) continue;
    const double number = value->is_number() ? value->get<double>() : 0.5;
    // Within what a double holds exactly; 5.0 is a whole number too, as some clients write it.
    const bool is_whole = std::abs(number) < 9e15 && std::trunc(number) == number;
    if (!is_whole || !llama::allows(param, static_cast<std::int64_t>(number)))
      bad_field(param.name, llama::range_text(param), *value);
    sampling.*param.value = static_cast<int>(number);
  }
}

float read_bias(const Json& value) {
  if (value.is_boolean() && !value.get<bool>()) return -std::numeric_limits<float>::infinity();
  if (!value.is_number()) bad_field("logit_bias", "a number, or false for a token that must not appear", value);
  if (value.get<double>() > llama::kMaxLogitBias) bad_field("logit_bias", "a number of at most 1e9", value);
  // Whatever is below all floats bans as -infinity does.
  constexpr double kLowest = std::numeric_limits<float>::lowest();
  return static_cast<float>(std::max(value.get<double>(), kLowest));
}

void add_bias(const Json& key, float bias, const llama::Vocab& vocab, std::size_t most,
              llama::SamplingParams& sampling) {
  if (key.is_number_integer()) {
    const auto token = key.get<std::int64_t>();
    if (token < 0 || token >= vocab.n_tokens())
      bad_field("logit_bias", strf("a token id below %d", vocab.n_tokens()), key);
    sampling.logit_bias.emplace_back(static_cast<Token>(token), bias);
  } else if (key.is_string()) {
    // Texts of many tokens count as many: a long one is no way around the limit.
    const std::vector<Token> tokens = vocab.tokenize(key.get<std::string>(), {});
    if (tokens.empty()) bad_field("logit_bias", "a text that the model's vocabulary has tokens for", key);
    check_count("logit_bias", sampling.logit_bias.size() + tokens.size(), most, "tokens");
    for (const Token token : tokens) sampling.logit_bias.emplace_back(token, bias);
  } else {
    bad_field("logit_bias", "a token id or a string", key);
  }
}

void read_logit_bias(const Fields& fields, const llama::Vocab& vocab, llama::SamplingParams& sampling) {
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return;
  const auto n_tokens = static_cast<std::size_t>(vocab.n_tokens());
  if (value->is_structured()) check_count("logit_bias", value->size(), n_tokens, "entries");
  const std::size_t most = sampling.logit_bias.size() + n_tokens;  // the server's own come on top
  if (value->is_array()) {
    for (const Json& pair : *value) {
      if (!pair.is_array() || pair.size() != 2) bad_field("logit_bias", "pairs [token, bias]", pair);
      add_bias(pair[0], read_bias(pair[1]), vocab, most, sampling);
    }
  } else if (value->is_object()) {
    for (const auto& [key, bias] : value->items()) {
      const bool is_id = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      add_bias(is_id ? Json(std::stoll(key)) : Json(key), read_bias(bias), vocab, most, sampling);
    }
  } else {
    bad_field("logit_bias", "an array of pairs or an object", *value);
  }
}

void read_sampling(const Fields& fields, const Service& service, llama::SamplingParams& sampling) {
  read_sampling_numbers(fields, sampling);
  fields.read("ignore_eos", sampling.ignore_eos);
  if (const auto seed =
          fields.integer("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max())) {
    sampling.seed = static_cast<std::uint32_t>(*seed);  // -1 becomes the value that means random
  }
  fields.read("adaptive_updt_w_cur", sampling.adaptive_new_p);
  read_breakers(fields, sampling);
  read_samplers(fields, sampling);
  read_logit_bias(fields, service.vocab(), sampling);
}

std::vector<std::string> read_strings(const Fields& fields, std::string_view name) {
  const Json* value = fields.find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  std::vector<std::string> strings;
  if (!value->is_array()) bad_field(name, "a string or an array of strings", *value);
  check_count(name, value->size(), kMaxStrings, "strings");
  for (const Json& item : *value) {
    if (!item.is_string()) bad_field(name, "strings", item);
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

/// A list of ids and strings is one prompt; a list that holds lists, objects or only strings is several.
bool is_several_prompts(const Json& value) {
  if (!value.is_array()) return false;
  bool any_id = false;
  for (const Json& item : value) {
    if (item.is_array() || item.is_object()) return true;
    any_id = any_id || item.is_number();
  }
  return !any_id;
}

/// What each answer of a request keeps of its settings, and repeats when it is written.
std::size_t settings_bytes(const GenerateRequest& request) {
  constexpr std::size_t kBiasBytes = 256;  // as JSON
  std::size_t bytes = request.grammar.size() + kBiasBytes * request.sampling.logit_bias.size();
  for (const std::string& text : request.stop) bytes += text.size();
  for (const std::string& text : request.sampling.dry_breakers) bytes += text.size();
  return bytes;
}

}  // namespace

int CompletionRequest::n_answers() const {
  int n = 0;
  for (const GenerateRequest& prompt : prompts) n += prompt.n_completions;
  return n;
}

std::vector<Token> tokenize_mixed(std::string_view name, const Json& prompt, const llama::Vocab& vocab,
                                  llama::TokenizeOptions options) {
  if (prompt.is_string()) return vocab.tokenize(prompt.get_ref<const std::string&>(), options);
  if (prompt.is_object()) {
    const auto text = prompt.find("prompt_string");
    const auto data = prompt.find("multimodal_data");
    if (data != prompt.end() && !(data->is_array() && data->empty())) {
      throw Error(ErrorCode::invalid_argument, "this model takes no multimodal data: the server has no projector");
    }
    if (text != prompt.end() && text->is_string()) return vocab.tokenize(text->get<std::string>(), options);
  }
  if (!prompt.is_array()) bad_field(name, "a string, token ids, or an array of both", prompt);
  std::vector<Token> tokens;
  bool first = true;
  for (const Json& item : prompt) {
    if (item.is_string()) {
      // Only a leading string gets the special tokens in front.
      const std::vector<Token> part =
          vocab.tokenize(item.get<std::string>(),
                         {.add_special = options.add_special && first, .parse_special = options.parse_special});
      tokens.insert(tokens.end(), part.begin(), part.end());
    } else if (item.is_number_integer()) {
      const auto id = item.get<std::int64_t>();
      if (id < 0 || id >= vocab.n_tokens()) throw Error(ErrorCode::invalid_argument, "Prompt contains invalid tokens");
      tokens.push_back(static_cast<Token>(id));
    } else {
      bad_field(name, "token ids and strings", item);
    }
    first = false;
  }
  return tokens;
}

namespace {

/// An empty text may be a prompt; one that the vocabulary has nothing for would get an empty answer without a word.
void check_has_tokens(std::string_view field, std::size_t text_bytes, const std::vector<Token>& tokens) {
  if (text_bytes == 0 || !tokens.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              strf("Field '%.*s': the vocabulary of the model has no token for any of the %zu bytes of text",
                   static_cast<int>(field.size()), field.data(), text_bytes),
              "look at its tokens: llama-gguf FILE --json");
}

std::size_t text_bytes(const Json& prompt) {
  if (prompt.is_string()) return prompt.get_ref<const std::string&>().size();
  std::size_t n = 0;
  if (prompt.is_array()) {
    for (const Json& part : prompt) n += part.is_string() ? text_bytes(part) : 0;
  } else if (prompt.is_object()) {
    if (const auto text = prompt.find("prompt_string"); text != prompt.end()) n = text_bytes(*text);
  }
  return n;
}

/// Of the texts in a prompt.
std::size_t least_tokens(const Json& prompt, const Service& service) {
  if (prompt.is_string()) return service.prompt_bound.least_tokens(prompt.get_ref<const std::string&>());
  std::size_t n = 0;
  if (prompt.is_array()) {
    for (const Json& part : prompt)
      if (part.is_string()) n += least_tokens(part, service);
  } else if (prompt.is_object()) {
    if (const auto text = prompt.find("prompt_string"); text != prompt.end()) n = least_tokens(*text, service);
  }
  return n;
}

}  // namespace

Prompts::Prompt tokenize_prompt(std::string_view name, std::string_view text, const Service& service) {
  const std::size_t least = service.prompt_bound.least_tokens(text);
  if (least >= static_cast<std::size_t>(service.engine.params().n_ctx_slot)) return {{}, least};
  Prompts::Prompt prompt{service.vocab().tokenize(text, {.add_special = true, .parse_special = true}), 0};
  check_has_tokens(name, text.size(), prompt.tokens);
  return prompt;
}

Prompts read_prompts(const Fields& fields, std::string_view name, const Service& service) {
  const Json* value = fields.find(name);
  if (value == nullptr)
    throw Error(ErrorCode::invalid_argument, strf("Field '%.*s': required", static_cast<int>(name.size()), name.data()),
                fields.find("messages") != nullptr ? "messages are for /v1/chat/completions" : "");
  Prompts prompts;
  const auto add = [&](const Json& prompt) {
    if (prompt.is_array() && prompt.empty()) bad_field(name, "at least one token", prompt);
    const std::size_t least = least_tokens(prompt, service);
    if (least >= static_cast<std::size_t>(service.engine.params().n_ctx_slot)) {
      prompts.prompts.push_back({{}, least});
    } else {
      std::vector<Token> tokens =
          tokenize_mixed(name, prompt, service.vocab(), {.add_special = true, .parse_special = true});
      check_has_tokens(name, text_bytes(prompt), tokens);
      prompts.prompts.push_back({std::move(tokens), 0});
    }
  };
  if (is_several_prompts(*value)) {
    if (value->empty()) bad_field(name, "at least one prompt", *value);
    if (value->size() > kMaxPrompts) {
      throw Error(ErrorCode::invalid_argument,
                  strf("Field '%.*s': %zu prompts, one request may hold %zu", static_cast<int>(name.size()),
                       name.data(), value->size(), kMaxPrompts),
                  "send them in several requests");
    }
    prompts.was_list = value->size() > 1;
    for (const Json& prompt : *value) add(prompt);
  } else {
    add(*value);
  }
  return prompts;
}

void set_prompts(CompletionRequest& request, Prompts prompts) {
  const GenerateRequest pattern = std::move(request.prompts.front());
  const std::size_t bytes = settings_bytes(pattern);
  const std::size_t n_answers = prompts.prompts.size() * static_cast<std::size_t>(pattern.n_completions);
  if (n_answers > 1 && bytes > kMaxSettingsBytes / n_answers) {
    throw Error(ErrorCode::invalid_argument,
                strf("Field 'prompt': %zu answers that each repeat %zu bytes of grammar, logit_bias, stop and "
                     "dry_sequence_breakers; one request may make %zu bytes of them",
                     n_answers, bytes, kMaxSettingsBytes),
                "send the prompts in several requests");
  }
  request.prompts.clear();
  request.prompt_was_list = prompts.was_list;
  for (Prompts::Prompt& given : prompts.prompts) {
    GenerateRequest prompt = pattern;
    prompt.prompt = std::move(given.tokens);
    prompt.prompt_at_least = given.at_least;
    request.prompts.push_back(std::move(prompt));
  }
}

namespace {

/// Fields that change nothing here still have a type.
void check_idle_fields(const Fields& fields) {
  for (const char* name : {"model", "user"}) (void)fields.text(name);
  (void)fields.boolean("backend_sampling");
  (void)fields.integer("n_cache_reuse", 0, kIntMax);
}

void read_stream_options(const Fields& fields, AnswerOptions& options) {
  const Json* stream = fields.find("stream_options");
  if (stream == nullptr) return;
  if (!stream->is_object()) bad_field("stream_options", "an object", *stream);
  const auto usage = stream->find("include_usage");
  if (usage == stream->end() || usage->is_null()) return;
  if (!usage->is_boolean()) bad_field("stream_options.include_usage", "true or false", *usage);
  options.include_usage = usage->get<bool>();
}

}  // namespace

void check_text_fields(const Fields& fields) {
  const Json* logprobs = fields.find("logprobs");
  if (logprobs != nullptr && *logprobs == true)
    bad_field("logprobs", strf("an integer from 0 to %d", ggml::kMaxReportedProbs), *logprobs);
}

void check_openai_text_fields(const Fields& fields, const CompletionRequest& request) {
  check_text_fields(fields);
  const auto refuse = [](const char* field, const char* what) {
    throw Error(ErrorCode::invalid_argument, strf("Field '%s': %s", field, what), "leave the field out");
  };
  if (fields.boolean("echo").value_or(false))
    refuse("echo", "the prompt cannot be a part of the answer in this version");
  const int n = request.prompts.front().n_completions;
  if (fields.integer("best_of", 1, kIntMax).value_or(1) > n)
    refuse("best_of", "all answers are given, none is chosen; ask for more with n");
  if (!fields.text("suffix").value_or("").empty())
    refuse("suffix", "text that follows the answer is not taken into account in this version");
}

CompletionRequest read_completion_fields(const Fields& fields, const Service& service) {
  check_idle_fields(fields);
  CompletionRequest request;
  GenerateRequest pattern;
  AnswerOptions& options = request.options;
  pattern.sampling = service.sampling;
  read_sampling(fields, service, pattern.sampling);
  read_grammar(fields, service, pattern);
  pattern.n_predict = service.settings.prompt.n_predict;
  if (pattern.n_predict < -1) pattern.n_predict = -1;
  // All are looked at, and the last counts.
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"})
    fields.read(name, pattern.n_predict, -1, kIntMax);
  for (const char* name : {"n_cmpl", "n"}) fields.read(name, pattern.n_completions, 1, service.engine.params().n_slots);
  pattern.stop = read_strings(fields, "stop");
  std::size_t stop_bytes = 0;
  for (const std::string& stop : pattern.stop) stop_bytes += stop.size();
  check_count("stop", stop_bytes, kMaxStopBytes, "bytes in all strings");
  if (pattern.stop.empty()) pattern.stop = service.settings.prompt.reverse_prompts;
  fields.read("id_slot", pattern.slot, -1, service.engine.params().n_slots - 1);
  pattern.cache_prompt = service.settings.server.cache_prompt;
  fields.read("cache_prompt", pattern.cache_prompt);
  pattern.n_keep = service.settings.cache.n_keep;
  fields.read("n_keep", pattern.n_keep, -1, kIntMax);
  fields.read("n_discard", pattern.n_discard, 0, kIntMax);
  fields.read("n_indent", pattern.n_indent, 0, kIntMax);
  pattern.adapter_scales = service.engine.adapter_scales();
  if (const Json* lora = fields.find("lora"))
    pattern.adapter_scales = read_adapter_scales("lora", *lora, service.model.adapters().size());
  if (const auto limit = fields.integer("t_max_predict_ms", -1, std::numeric_limits<std::int64_t>::max()))
    pattern.t_max_predict_ms = *limit;
  pattern.show_special = service.settings.prompt.special;

  fields.read("stream", options.stream);
  read_stream_options(fields, options);
  fields.read("return_tokens", options.return_tokens);
  fields.read("timings_per_token", options.timings_per_token);
  fields.read("verbose", options.verbose);
  fields.read("return_progress", options.return_progress);
  fields.read("post_sampling_probs", options.post_sampling_probs);
  options.sse_ping_interval_s = service.settings.server.sse_ping_interval_s;
  fields.read("sse_ping_interval", options.sse_ping_interval_s, -1, kIntMax);
  options.response_fields = read_strings(fields, "response_fields");

  int n_probs = 0;
  fields.read("n_probs", n_probs, 0, ggml::kMaxReportedProbs);
  if (const Json* logprobs = fields.find("logprobs"); logprobs != nullptr && !logprobs->is_boolean())
    fields.read("logprobs", n_probs, 0, ggml::kMaxReportedProbs);  // the chat endpoint reads the truth values
  options.report_probabilities = n_probs > 0;
  pattern.sampling.n_probs = n_probs;
  pattern.sampling.post_sampling_probs = options.post_sampling_probs;
  pattern.report_progress = options.return_progress && options.stream;
  request.prompts.push_back(std::move(pattern));
  return request;
}

}  // namespace server
