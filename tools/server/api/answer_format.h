#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/completion_request.h"

namespace server {

/// One answer as far as it has come: what its events add up to.
struct Answer {
  std::string text;
  std::vector<Token> tokens;
  Json probabilities = Json::array();  // entries of 4.5, when asked; in streams those that were not told before the end
  FinalEvent end;
  bool ended = false;
};

/// The shape in which one endpoint writes its answers, whole or as a stream of server-sent events. One object per HTTP
/// request, used by its thread only. `answer` already includes the event's text.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  /// The body when the request did not ask for a stream.
  [[nodiscard]] virtual Json whole(const std::vector<Answer>& answers) = 0;

  // Streams: each call appends complete events ("data: ...\n\n") to `out`. `probabilities` are a list of the tokens
  // whose text is out by this event.
  virtual void stream_token(int index, const TokenEvent& event, const Json& probabilities, const Answer& answer,
                            std::string& out) = 0;
  virtual void stream_progress(int index, const ProgressEvent& event, std::string& out) = 0;
  virtual void stream_end(int index, const Answer& answer, std::string& out) = 0;
  /// After the last answer has ended.
  virtual void stream_close(const std::vector<Answer>& answers, std::string& out) = 0;
};

[[nodiscard]] std::unique_ptr<AnswerFormat> native_format(const CompletionRequest& request, const Service& service);
[[nodiscard]] std::unique_ptr<AnswerFormat> text_completion_format(const CompletionRequest& request,
                                                                   const Service& service);
[[nodiscard]] std::unique_ptr<AnswerFormat> chat_completion_format(const CompletionRequest& request,
                                                                   const Service& service);

}  // namespace server
