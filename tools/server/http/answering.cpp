#include "http/answering.h"

#include <algorithm>
#include <chrono>

#include "api/pieces.h"
#include "llama/vocab.h"

namespace server {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(250);  // how soon a client's leaving is noticed

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Answering::Answering(CompletionRequest request, MakeFormat make_format, std::shared_ptr<Service> service)
    : service_(std::move(service)), request_(std::move(request)), last_sent_ms_(now_ms()) {
  format_ = make_format(request_, *service_);
  answers_.resize(static_cast<std::size_t>(request_.n_answers()));
  token_texts_.resize(answers_.size());
  int first = 0;
  try {
    for (const GenerateRequest& prompt : request_.prompts) {
      service_->engine.submit(prompt, mailbox_, first);
      first += prompt.n_completions;
    }
  } catch (...) {
    mailbox_->cancel();
    throw;
  }
}

Answering::~Answering() {
  if (!all_ended()) mailbox_->cancel();
}

Json Answering::whole(const std::function<bool()>& client_left) {
  double looked_ms = now_ms();
  while (!all_ended()) {
    std::optional<Mailbox::Letter> letter = mailbox_->pop(kPoll);
    if (letter.has_value()) take(*letter, nullptr);
    // By the clock and not only when nothing arrives: tokens may come faster than that for as long as the answer lasts.
    if (now_ms() - looked_ms < static_cast<double>(kPoll.count())) continue;
    looked_ms = now_ms();
    if (client_left()) throw ggml::Error(ggml::ErrorCode::cancelled, "the client has left");
  }
  for (Answer& answer : answers_) answer.text += answer.end.text;
  return format_->whole(answers_);
}

std::chrono::milliseconds Answering::until_ping() const {
  if (request_.options.sse_ping_interval_s <= 0) return kPoll;
  const double left_ms = last_sent_ms_ + 1000.0 * request_.options.sse_ping_interval_s - now_ms();
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::clamp(left_ms, 0.0, static_cast<double>(kPoll.count()))));
}

void Answering::await_start(const std::function<bool()>& client_left) {
  while (true) {
    const std::chrono::milliseconds wait = until_ping();
    first_ = mailbox_->pop(wait);
    if (first_.has_value() || wait.count() == 0) break;
    if (client_left()) throw ggml::Error(ggml::ErrorCode::cancelled, "the client has left");
  }
  if (!first_.has_value()) return;
  if (const auto* failed = std::get_if<ErrorEvent>(&first_->event))
    throw Failed{to_http(failed->error, failed->n_prompt, failed->n_ctx)};
}

std::string Answering::next_events(bool& ended) {
  std::string out;
  std::optional<Mailbox::Letter> letter =
      first_.has_value() ? std::exchange(first_, std::nullopt) : mailbox_->pop(until_ping());
  try {
    // Everything that is there already goes out in one write.
    for (; letter.has_value(); letter = mailbox_->pop(std::chrono::milliseconds(0))) take(*letter, &out);
  } catch (const Failed& failed) {
    append_event(failed.error.body, out);
    n_ended_ = answers_.size();
    mailbox_->cancel();
    ended = true;
    return out;
  }
  if (all_ended()) {
    format_->stream_close(answers_, out);
    ended = true;
  }
  const double now = now_ms();
  if (out.empty() && until_ping().count() == 0) out = ":\n\n";
  if (!out.empty()) last_sent_ms_ = now;
  return out;
}

void Answering::take(Mailbox::Letter& letter, std::string* stream) {
  Answer& answer = answers_[static_cast<std::size_t>(letter.answer)];
  if (const auto* failed = std::get_if<ErrorEvent>(&letter.event)) {
    throw Failed{to_http(failed->error, failed->n_prompt, failed->n_ctx)};
  }
  if (const auto* token = std::get_if<TokenEvent>(&letter.event)) {
    take_token(letter.answer, *token, stream);
  } else if (const auto* progress = std::get_if<ProgressEvent>(&letter.event)) {
    if (stream != nullptr) format_->stream_progress(letter.answer, *progress, *stream);
  } else {
    answer.end = std::move(std::get<FinalEvent>(letter.event));
    answer.ended = true;
    ++n_ended_;
    end_probabilities(letter.answer);
    if (stream != nullptr) format_->stream_end(letter.answer, answer, *stream);
  }
}

Json Answering::shown_probabilities(int index) {
  std::deque<TokenText::Waiting>& waiting = token_texts_[static_cast<std::size_t>(index)].waiting;
  Json shown = Json::array();
  for (; !waiting.empty() && waiting.front().begin < answers_[static_cast<std::size_t>(index)].text.size();
       waiting.pop_front())
    shown.push_back(std::move(waiting.front().probability));
  return shown;
}

/// What waits still is told now, but for tokens that only a stop string or what follows it stands in.
void Answering::end_probabilities(int index) {
  Answer& answer = answers_[static_cast<std::size_t>(index)];
  TokenText& tokens = token_texts_[static_cast<std::size_t>(index)];
  const std::size_t size = answer.text.size() + answer.end.text.size();
  for (TokenText::Waiting& one : tokens.waiting)
    if (one.begin < size || tokens.size == size) answer.probabilities.push_back(std::move(one.probability));
  tokens.waiting.clear();
}

void Answering::take_token(int index, const TokenEvent& event, std::string* stream) {
  Answer& answer = answers_[static_cast<std::size_t>(index)];
  answer.text += event.text;
  answer.tokens.push_back(event.token);
  if (request_.options.report_probabilities) {
    const GenerateRequest& prompt = request_.prompts[static_cast<std::size_t>(index) /
                                                     static_cast<std::size_t>(request_.prompts.front().n_completions)];
    const llama::Vocab& vocab = service_->vocab();
    const bool show =
        prompt.show_special || std::binary_search(prompt.shown_tokens.begin(), prompt.shown_tokens.end(), event.token);
    const auto special = show ? llama::SpecialText::show : llama::SpecialText::hide;
    const bool silent = vocab.is_eog(event.token) && !prompt.show_special;
    TokenText& tokens = token_texts_[static_cast<std::size_t>(index)];
    tokens.waiting.push_back({tokens.size, probability_json(event.sampled, request_.options, vocab)});
    tokens.size += tokens.characters.push(silent ? std::string_view() : vocab.piece(event.token, special)).size();
  }
  if (stream != nullptr) format_->stream_token(index, event, shown_probabilities(index), answer, *stream);
}

}  // namespace server
