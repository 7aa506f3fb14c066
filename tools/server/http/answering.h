#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/answer_format.h"
#include "api/service.h"
#include "engine/mailbox.h"
#include "llama/utf8.h"

namespace server {

/// Waits for the answers to one request and writes them. Owned by the HTTP thread (streams: by the response's content
/// provider).
class Answering {
 public:
  using MakeFormat = std::unique_ptr<AnswerFormat> (*)(const CompletionRequest&, const Service&);

  /// Queues the request with the engine. Throws what Engine::submit throws.
  Answering(CompletionRequest request, MakeFormat make_format, std::shared_ptr<Service> service);
  ~Answering();  // cancels what has not ended

  /// The whole answer. Throws Failed when the engine reports an error, Error(cancelled) when the client has left.
  [[nodiscard]] Json whole(const std::function<bool()>& client_left);

  /// Streams: waits for the first event, so that an early failure can still be an ordinary HTTP error, but no longer
  /// than until the first comment of next_events() is due. Same errors as whole().
  void await_start(const std::function<bool()>& client_left);
  /// The next complete events of the stream, a comment where none has come for the request's sse_ping_interval, or ""
  /// after `kPoll` without either. Sets `ended` with the last.
  [[nodiscard]] std::string next_events(bool& ended);

  [[nodiscard]] const AnswerOptions& options() const { return request_.options; }

  /// An engine error as HTTP.
  struct Failed {
    HttpError error;
  };

 private:
  void take(Mailbox::Letter& letter, std::string* stream);
  /// The probabilities of the tokens whose text is out by now; those of the others wait for it, since a stop string may
  /// take it away.
  [[nodiscard]] Json shown_probabilities(int index);
  void end_probabilities(int index);
  void take_token(int index, const TokenEvent& event, std::string* stream);
  /// Until a comment keeps the stream alive; at most kPoll.
  [[nodiscard]] std::chrono::milliseconds until_ping() const;
  [[nodiscard]] bool all_ended() const { return n_ended_ == answers_.size(); }

  std::shared_ptr<Service> service_;
  CompletionRequest request_;
  std::unique_ptr<AnswerFormat> format_;
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::vector<Answer> answers_;
  /// The text of an answer as its tokens give it, stop strings included, and the probabilities that wait.
  struct TokenText {
    llama::Utf8Stream characters;
    std::size_t size = 0;
    struct Waiting {
      std::size_t begin;  // of the token's text
      Json probability;
    };
    std::deque<Waiting> waiting;
  };
  std::vector<TokenText> token_texts_;
  std::size_t n_ended_ = 0;
  std::optional<Mailbox::Letter> first_;
  double last_sent_ms_ = 0;
};

}  // namespace server
