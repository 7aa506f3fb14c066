// POST /completion: llama.cpp's own answer (spec: native completion).
#include "api/pieces.h"

namespace server {
namespace {

std::string_view stop_type_name(StopType stop) {
  switch (stop) {
    case StopType::eos:
      return "eos";
    case StopType::limit:
      return "limit";
    case StopType::word:
      return "word";
    case StopType::none:
      break;
  }
  return "none";
}

/// The prompt that an answer belongs to.
const GenerateRequest& prompt_of(const CompletionRequest& request, int index) {
  auto prompt = request.prompts.begin();
  for (; index >= prompt->n_completions; ++prompt) index -= prompt->n_completions;
  return *prompt;
}

class NativeFormat : public AnswerFormat {
 public:
  NativeFormat(const CompletionRequest& request, const Service& service) : request_(request), service_(service) {}

  Json whole(const std::vector<Answer>& answers) override {
    Json all = Json::array();
    for (std::size_t i = 0; i < answers.size(); ++i) {
      all.push_back(select_fields(native_answer_json(static_cast<int>(i), answers[i], request_, service_, false),
                                  request_.options.response_fields));
    }
    return all.size() == 1 && !request_.prompt_was_list ? all[0] : all;
  }

  void stream_token(int index, const TokenEvent& event, const Json& probabilities, const Answer& answer,
                    std::string& out) override {
    if (event.incomplete_character) return;
    Json json = part_json(index, event.slot, event.text, event.timings.predicted_n);
    json["tokens"] = Json::array({event.token});
    json["tokens_evaluated"] = event.timings.cache_n + event.timings.prompt_n;
    if (request_.options.timings_per_token) json["timings"] = timings_json(event.timings);
    if (!probabilities.empty()) json["completion_probabilities"] = probabilities;
    append_event(json, out);
  }

  void stream_progress(int index, const ProgressEvent& event, std::string& out) override {
    Json json = part_json(index, event.slot, "", 0);
    json["tokens_evaluated"] = event.total;
    json["prompt_progress"] = {
        {"total", event.total}, {"cache", event.cache}, {"processed", event.processed}, {"time_ms", event.time_ms}};
    append_event(json, out);
  }

  void stream_end(int index, const Answer& answer, std::string& out) override {
    if (!answer.end.text.empty() || !answer.probabilities.empty()) {  // what turned out to be no stop string
      Json json = part_json(index, answer.end.slot, answer.end.text, answer.end.timings.predicted_n);
      json["tokens_evaluated"] = answer.end.n_prompt;
      if (!answer.probabilities.empty()) json["completion_probabilities"] = answer.probabilities;
      append_event(json, out);
    }
    append_event(
        select_fields(native_answer_json(index, answer, request_, service_, true), request_.options.response_fields),
        out);
  }

  void stream_close(const std::vector<Answer>&, std::string&) override {}

 private:
  static Json part_json(int index, int slot, const std::string& content, int n_predicted) {
    return {{"index", index},       {"content", content}, {"tokens", Json::array()},
            {"stop", false},        {"id_slot", slot},    {"tokens_predicted", n_predicted},
            {"tokens_evaluated", 0}};
  }

  const CompletionRequest& request_;
  const Service& service_;
};

}  // namespace

Json native_answer_json(int index, const Answer& answer, const CompletionRequest& request, const Service& service,
                        bool streamed) {
  const GenerateRequest& prompt = prompt_of(request, index);
  const FinalEvent& end = answer.end;
  Json json = {{"index", index},
               {"content", streamed ? std::string() : answer.text},
               {"tokens", streamed || !request.options.return_tokens ? Json::array() : Json(answer.tokens)},
               {"id_slot", end.slot},
               {"stop", true},
               {"model", service.name},
               {"tokens_predicted", end.timings.predicted_n},
               {"tokens_evaluated", end.n_prompt},
               {"generation_settings", generation_settings_json(prompt, request.options, end.seed, service, true)},
               {"prompt", service.vocab().pieces(prompt.prompt, llama::SpecialText::show)},
               {"has_new_line", end.has_new_line},
               {"truncated", end.truncated},
               {"stop_type", stop_type_name(end.stop)},
               {"stopping_word", end.stopping_word},
               {"stopped_eos", end.stop == StopType::eos},
               {"stopped_word", end.stop == StopType::word},
               {"stopped_limit", end.stop == StopType::limit},
               {"tokens_cached", end.n_cached},
               {"timings", timings_json(end.timings)}};
  if (!streamed && request.options.report_probabilities) json["completion_probabilities"] = answer.probabilities;
  return json;
}

std::unique_ptr<AnswerFormat> native_format(const CompletionRequest& request, const Service& service) {
  return std::make_unique<NativeFormat>(request, service);
}

}  // namespace server
