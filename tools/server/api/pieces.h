#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/answer_format.h"

/// Parts that several answer formats write.
namespace server {

/// What an answer says about one generated token's probability, and of the alternatives if the options ask for them.
[[nodiscard]] Json probability_json(const llama::SampledToken& sampled, const AnswerOptions& options,
                                    const llama::Vocab& vocab);
/// The native answer (POST /completion); `streamed`: the last event of a stream, without the text. `index`: of the
/// answer.
[[nodiscard]] Json native_answer_json(int index, const Answer& answer, const CompletionRequest& request,
                                      const Service& service, bool streamed);
[[nodiscard]] Json timings_json(const Timings& timings);
/// "usage" over all answers to one request: prompts count once, completions add up.
[[nodiscard]] Json usage_json(const std::vector<Answer>& answers, const CompletionRequest& request);
/// "generation_settings" of an answer; `all` false leaves out what /props leaves out.
[[nodiscard]] Json generation_settings_json(const GenerateRequest& request, const AnswerOptions& options,
                                            std::uint32_t seed, const Service& service, bool all);
[[nodiscard]] std::string_view finish_reason(StopType stop);
/// "chatcmpl-" and 32 random letters and digits.
[[nodiscard]] std::string new_completion_id();
[[nodiscard]] std::int64_t unix_seconds();
/// Appends "data: JSON\n\n".
void append_event(const Json& data, std::string& out);
/// Keeps only the wanted paths ("a/b": member b of member a, under the name b).
[[nodiscard]] Json select_fields(const Json& answer, const std::vector<std::string>& paths);

}  // namespace server
