// POST /v1/completions and /v1/chat/completions: OpenAI's answers. They differ in how a choice holds its text and in
// how a stream ends.
#include "api/pieces.h"
#include "common/chat/reply_parser.h"

namespace server {
namespace {

class OpenAiFormat : public AnswerFormat {
 public:
  OpenAiFormat(const CompletionRequest& request, const Service& service)
      : request_(request), service_(service), id_(new_completion_id()), created_(unix_seconds()) {}

  Json whole(const std::vector<Answer>& answers) override {
    Json choices = Json::array();
    for (std::size_t i = 0; i < answers.size(); ++i) choices.push_back(whole_choice(static_cast<int>(i), answers[i]));
    Json json = envelope(std::move(choices), object_name(false));
    json["usage"] = usage_json(answers, request_);
    json["id"] = id_;
    json["timings"] = timings_json(answers.front().end.timings);
    add_native(json, 0, answers.front(), false);
    return json;
  }

 protected:
  virtual const char* object_name(bool streamed) const = 0;
  virtual Json whole_choice(int index, const Answer& answer) const = 0;

  Json envelope(Json choices, const char* object) const {
    return {{"choices", std::move(choices)},
            {"created", created_},
            {"model", service_.name},
            {"system_fingerprint", service_.build},
            {"object", object}};
  }

  Json chunk(Json choice) const {
    Json json = envelope(Json::array({std::move(choice)}), object_name(true));
    json["id"] = id_;
    return json;
  }

  /// With "verbose" the answer holds the native one too.
  void add_native(Json& json, int index, const Answer& answer, bool streamed) const {
    if (request_.options.verbose) json["__verbose"] = native_answer_json(index, answer, request_, service_, streamed);
  }

  Json logprobs_json(const Answer& answer) const {
    if (!request_.options.report_probabilities) return nullptr;
    return {{"content", answer.probabilities}};
  }

  static Json logprobs_json(const Json& probabilities) {
    if (probabilities.empty()) return nullptr;
    return {{"content", probabilities}};
  }

  static Json progress_json(const ProgressEvent& event) {
    return {{"total", event.total}, {"cache", event.cache}, {"processed", event.processed}, {"time_ms", event.time_ms}};
  }

  const CompletionRequest& request_;
  const Service& service_;
  const std::string id_;
  const std::int64_t created_;
};

class TextCompletionFormat : public OpenAiFormat {
 public:
  using OpenAiFormat::OpenAiFormat;

  void stream_token(int index, const TokenEvent& event, const Json& probabilities, const Answer&,
                    std::string& out) override {
    if (event.text.empty() && probabilities.empty()) return;
    Json json = chunk(choice(index, event.text, logprobs_json(probabilities), nullptr));
    if (request_.options.timings_per_token) json["timings"] = timings_json(event.timings);
    append_event(json, out);
  }

  void stream_progress(int index, const ProgressEvent& event, std::string& out) override {
    Json json = chunk(choice(index, "", nullptr, nullptr));
    json["prompt_progress"] = progress_json(event);
    append_event(json, out);
  }

  void stream_end(int index, const Answer& answer, std::string& out) override {
    if (!answer.end.text.empty() || !answer.probabilities.empty())
      append_event(chunk(choice(index, answer.end.text, logprobs_json(answer.probabilities), nullptr)), out);
    Json json = chunk(choice(index, "", nullptr, finish_reason(answer.end.stop)));
    json["usage"] = usage_json({answer}, single_);
    json["timings"] = timings_json(answer.end.timings);
    add_native(json, index, answer, true);
    append_event(json, out);
  }

  void stream_close(const std::vector<Answer>&, std::string& out) override { out += "data: [DONE]\n\n"; }

 private:
  const char* object_name(bool) const override { return "text_completion"; }

  static Json choice(int index, const std::string& text, Json logprobs, Json reason) {
    return {{"text", text}, {"index", index}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(reason)}};
  }

  Json whole_choice(int index, const Answer& answer) const override {
    return choice(index, answer.text, logprobs_json(answer), finish_reason(answer.end.stop));
  }

  // A stream's usage is that of its own answer.
  const CompletionRequest single_{.prompts = {GenerateRequest{}}, .options = {}, .reply = {}};
};

/// "delta" of a chunk. The first piece of a call names it.
Json delta_json(const common::chat::ReplyDelta& delta) {
  using Kind = common::chat::ReplyDelta::Kind;
  switch (delta.kind) {
    case Kind::reasoning:
      return {{"reasoning_content", delta.text}};
    case Kind::content:
      return {{"content", delta.text}};
    default:
      break;
  }
  Json call = {{"index", delta.index}};
  Json function = Json::object();
  if (delta.kind == Kind::call_begin) {
    call["id"] = delta.id;
    call["type"] = "function";
    function["name"] = delta.name;
  }
  function["arguments"] = delta.text;
  call["function"] = std::move(function);
  return {{"tool_calls", Json::array({std::move(call)})}};
}

Json message_json(const common::chat::Reply& reply) {
  Json message = {{"role", "assistant"}, {"content", reply.content}};
  if (!reply.reasoning.empty()) message["reasoning_content"] = reply.reasoning;
  for (const common::chat::ToolCall& call : reply.calls) {
    message["tool_calls"].push_back(
        {{"type", "function"}, {"id", call.id}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

class ChatCompletionFormat : public OpenAiFormat {
 public:
  using OpenAiFormat::OpenAiFormat;

  void stream_token(int index, const TokenEvent& event, const Json& probabilities, const Answer&,
                    std::string& out) override {
    const Timings* timings = request_.options.timings_per_token ? &event.timings : nullptr;
    stream_deltas(index, open(index, out).push(event.text), probabilities, timings, out);
  }

  void stream_progress(int index, const ProgressEvent& event, std::string& out) override {
    Json json = chunk(choice(index, {{"role", "assistant"}, {"content", nullptr}}, nullptr));
    json["prompt_progress"] = progress_json(event);
    append_event(json, out);
  }

  void stream_end(int index, const Answer& answer, std::string& out) override {
    common::chat::ReplyParser& parser = open(index, out);
    stream_deltas(index, parser.push(answer.end.text), answer.probabilities, nullptr, out);
    stream_deltas(index, parser.finish(), Json::array(), nullptr, out);
    Json json = chunk(choice(index, Json::object(), reason(parser.reply(), answer)));
    json["timings"] = timings_json(answer.end.timings);
    add_native(json, index, answer, true);
    append_event(json, out);
  }

  void stream_close(const std::vector<Answer>& answers, std::string& out) override {
    if (request_.options.include_usage) {
      Json json = envelope(Json::array(), object_name(true));
      json["id"] = id_;
      json["usage"] = usage_json(answers, request_);
      append_event(json, out);
    }
    out += "data: [DONE]\n\n";
  }

 private:
  const char* object_name(bool streamed) const override {
    return streamed ? "chat.completion.chunk" : "chat.completion";
  }

  static Json choice(int index, Json delta, Json reason) {
    return {{"finish_reason", std::move(reason)}, {"index", index}, {"delta", std::move(delta)}};
  }

  static std::string_view reason(const common::chat::Reply& reply, const Answer& answer) {
    return reply.calls.empty() || answer.end.stop == StopType::limit ? finish_reason(answer.end.stop) : "tool_calls";
  }

  /// The probabilities go with the first; they are told although no text is there yet.
  void stream_deltas(int index, std::vector<common::chat::ReplyDelta> deltas, const Json& probabilities,
                     const Timings* timings, std::string& out) const {
    if (deltas.empty() && !probabilities.empty())
      deltas.push_back({common::chat::ReplyDelta::Kind::content, 0, {}, {}, {}});
    bool first = true;
    for (const common::chat::ReplyDelta& delta : deltas) {
      Json json = chunk(choice(index, delta_json(delta), nullptr));
      if (first && !probabilities.empty()) json["choices"][0]["logprobs"] = logprobs_json(probabilities);
      if (timings != nullptr) json["timings"] = timings_json(*timings);
      append_event(json, out);
      first = false;
    }
  }

  /// The first chunk of an answer says who speaks.
  common::chat::ReplyParser& open(int index, std::string& out) {
    const auto i = static_cast<std::size_t>(index);
    if (parsers_.size() <= i) parsers_.resize(i + 1);
    if (parsers_[i] == nullptr) {
      parsers_[i] = std::make_unique<common::chat::ReplyParser>(request_.reply);
      append_event(chunk(choice(index, {{"role", "assistant"}, {"content", nullptr}}, nullptr)), out);
    }
    return *parsers_[i];
  }

  Json whole_choice(int index, const Answer& answer) const override {
    common::chat::ReplyParser parser(request_.reply);
    (void)parser.push(answer.text);
    (void)parser.finish();
    Json json = {
        {"finish_reason", reason(parser.reply(), answer)}, {"index", index}, {"message", message_json(parser.reply())}};
    if (request_.options.report_probabilities) json["logprobs"] = logprobs_json(answer);
    return json;
  }

  std::vector<std::unique_ptr<common::chat::ReplyParser>> parsers_;  // of streams, one per answer
};

}  // namespace

std::unique_ptr<AnswerFormat> text_completion_format(const CompletionRequest& request, const Service& service) {
  return std::make_unique<TextCompletionFormat>(request, service);
}

std::unique_ptr<AnswerFormat> chat_completion_format(const CompletionRequest& request, const Service& service) {
  return std::make_unique<ChatCompletionFormat>(request, service);
}

}  // namespace server
