#include "api/pieces.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include "api/adapters.h"
#include "common/setup/setup.h"
#include "llama/utf8.h"

namespace server {
namespace {

Json token_json(Token token, float logprob, bool post_sampling, const llama::Vocab& vocab) {
  const std::string_view piece = vocab.piece(token, llama::SpecialText::show);
  Json entry;
  entry["id"] = token;
  entry["token"] = std::string(piece.substr(0, piece.size() - llama::unfinished_utf8_bytes(piece)));
  entry["bytes"] = Json::array();
  for (const char c : piece) entry["bytes"].push_back(static_cast<unsigned char>(c));
  if (post_sampling) {
    entry["prob"] = std::exp(logprob);
  } else {
    entry["logprob"] = std::isfinite(logprob) ? logprob : std::numeric_limits<float>::lowest();
  }
  return entry;
}

Json bias_json(const llama::SamplingParams& sampling, const llama::Vocab& vocab) {
  Json json = Json::array();
  const auto add = [&](Token token, float value) {
    json.push_back({{"bias", std::isfinite(value) ? Json(value) : Json(nullptr)}, {"token", token}});
  };
  for (const auto& [token, value] : sampling.logit_bias) add(token, value);
  if (sampling.ignore_eos) {
    for (const Token token : vocab.eog_tokens()) add(token, -std::numeric_limits<float>::infinity());
  }
  return json;
}

/// The settings that are not numbers of samplers.
void add_answer_settings(Json& json, const GenerateRequest& request, const AnswerOptions& options,
                         const Service& service) {
  Json samplers = Json::array();
  for (const llama::SamplerKind kind : request.sampling.samplers) samplers.push_back(common::sampler_name(kind));
  json.update({{"stop", request.stop},
               {"max_tokens", request.n_predict},
               {"n_predict", request.n_predict},
               {"n_keep", request.n_keep},
               {"n_discard", request.n_discard},
               {"ignore_eos", request.sampling.ignore_eos},
               {"stream", options.stream},
               {"logit_bias", bias_json(request.sampling, service.vocab())},
               {"n_probs", request.sampling.n_probs},
               {"min_keep", request.sampling.min_keep},
               {"grammar", request.grammar},
               {"grammar_lazy", options.grammar_lazy},
               {"grammar_triggers", Json::array()},
               {"preserved_tokens", request.shown_tokens},
               {"chat_format", options.chat_format},
               {"reasoning_format", options.reasoning_format},
               {"reasoning_in_content", false},
               {"generation_prompt", options.generation_prompt},
               {"samplers", samplers},
               {"speculative.types", "none"},
               {"timings_per_token", options.timings_per_token},
               {"post_sampling_probs", options.post_sampling_probs},
               {"backend_sampling", true},
               {"lora", scales_json(request.adapter_scales)}});
}

double per(double a, double b) {
  return b > 0 ? a / b : 0.0;
}

}  // namespace

Json probability_json(const llama::SampledToken& sampled, const AnswerOptions& options, const llama::Vocab& vocab) {
  const bool post_sampling = options.post_sampling_probs;
  Json entry = token_json(sampled.token, sampled.logprob, post_sampling, vocab);
  Json& top = entry[post_sampling ? "top_probs" : "top_logprobs"] = Json::array();
  if (!options.report_alternatives) return entry;
  for (const llama::TokenProb& candidate : sampled.top) {
    if (post_sampling && std::exp(candidate.logprob) <= 0.0f) continue;
    top.push_back(token_json(candidate.token, candidate.logprob, post_sampling, vocab));
  }
  return entry;
}

Json timings_json(const Timings& t) {
  return {{"cache_n", t.cache_n},
          {"prompt_n", t.prompt_n},
          {"prompt_ms", t.prompt_ms},
          {"prompt_per_token_ms", per(t.prompt_ms, t.prompt_n)},
          {"prompt_per_second", per(1000.0 * t.prompt_n, t.prompt_ms)},
          {"predicted_n", t.predicted_n},
          {"predicted_ms", t.predicted_ms},
          {"predicted_per_token_ms", per(t.predicted_ms, t.predicted_n)},
          {"predicted_per_second", per(1000.0 * t.predicted_n, t.predicted_ms)},
          {"n_ctx", t.n_ctx},
          {"n_past", t.n_past}};
}

Json usage_json(const std::vector<Answer>& answers, const CompletionRequest& request) {
  int prompt = 0;
  int completion = 0;
  int cached = 0;
  std::size_t i = 0;
  for (const GenerateRequest& one : request.prompts) {
    prompt += answers[i].end.n_prompt;
    cached += answers[i].end.timings.cache_n;
    for (int k = 0; k < one.n_completions; ++k) completion += answers[i++].end.timings.predicted_n;
  }
  return {{"completion_tokens", completion},
          {"prompt_tokens", prompt},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

Json generation_settings_json(const GenerateRequest& request, const AnswerOptions& options, std::uint32_t seed,
                              const Service& service, bool all) {
  const llama::SamplingParams& s = request.sampling;
  Json json = {{"seed", seed},
               {"temperature", s.temperature},
               {"dynatemp_range", s.dynatemp_range},
               {"dynatemp_exponent", s.dynatemp_exponent},
               {"top_k", s.top_k},
               {"top_p", s.top_p},
               {"min_p", s.min_p},
               {"top_n_sigma", s.top_n_sigma},
               {"xtc_probability", s.xtc_probability},
               {"xtc_threshold", s.xtc_threshold},
               {"typical_p", s.typical_p},
               {"tfs_z", s.tfs_z},
               {"repeat_last_n", s.penalty_last_n},
               {"repeat_penalty", s.repeat_penalty},
               {"presence_penalty", s.presence_penalty},
               {"frequency_penalty", s.frequency_penalty},
               {"dry_multiplier", s.dry_multiplier},
               {"dry_base", s.dry_base},
               {"dry_allowed_length", s.dry_allowed_length},
               {"dry_penalty_last_n", s.dry_penalty_last_n},
               {"dry_sequence_breakers", s.dry_breakers},
               {"mirostat", s.mirostat},
               {"mirostat_tau", s.mirostat_tau},
               {"mirostat_eta", s.mirostat_eta},
               {"adaptive_target", s.adaptive_target},
               {"adaptive_decay", s.adaptive_decay}};
  add_answer_settings(json, request, options, service);
  if (!all) {
    for (const char* key : {"dry_sequence_breakers", "stop", "logit_bias", "grammar", "grammar_lazy",
                            "grammar_triggers", "preserved_tokens"}) {
      json.erase(key);
    }
  }
  return json;
}

std::string_view finish_reason(StopType stop) {
  return stop == StopType::limit ? "length" : "stop";
}

std::string new_completion_id() {
  static constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 generator{std::random_device{}()};
  std::string id = "chatcmpl-";
  for (int i = 0; i < 32; ++i) id += kLetters[generator() % kLetters.size()];
  return id;
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void append_event(const Json& data, std::string& out) {
  out.append("data: ").append(dump(data)).append("\n\n");
}

Json select_fields(const Json& answer, const std::vector<std::string>& paths) {
  if (paths.empty()) return answer;
  Json selected = Json::object();
  for (const std::string& path : paths) {
    const Json* at = &answer;
    std::string name;
    std::size_t begin = 0;
    while (at != nullptr && begin <= path.size()) {
      const std::size_t end = std::min(path.find('/', begin), path.size());
      name = path.substr(begin, end - begin);
      const auto it = at->is_object() ? at->find(name) : at->end();
      at = it == at->end() ? nullptr : &*it;
      begin = end + 1;
    }
    if (at != nullptr) selected[name] = *at;
  }
  return selected;
}

}  // namespace server
