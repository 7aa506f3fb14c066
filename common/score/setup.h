#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/args/settings.h"
#include "common/setup/planned_run.h"
#include "llama/context.h"
#include "llama/model.h"

namespace common {

/// Sizes of a run over a text in chunks.
struct ScoreShape {
  int n_ctx = 512;  // tokens of a chunk
  int n_seq = 1;    // chunks evaluated at the same time
};

/// A chunk is -c tokens (512 without it) and as many chunks are evaluated together as -b has room for.
[[nodiscard]] ScoreShape score_shape(const Settings& settings);

/// Plans and announces a run in chunks. Throws Error, DoesNotFit.
[[nodiscard]] PlannedRun plan_scores(const Settings& settings);

/// A context for that many chunks, on one device or as planned. `observer` may be null.
[[nodiscard]] std::unique_ptr<llama::Context> make_score_context(const Settings& settings, const llama::Model& model,
                                                                 const PlannedRun& planned, const ScoreShape& shape,
                                                                 ggml::Observer* observer);
[[nodiscard]] std::unique_ptr<llama::Context> make_score_context(const Settings& settings, const llama::Model& model,
                                                                 ggml::Device& device, const ScoreShape& shape,
                                                                 ggml::Observer* observer);

/// Tokens of the text that the user gave; BOS in front if the model wants it. Throws Error(invalid_argument) when
/// there is no text, or none that the vocabulary has tokens for.
[[nodiscard]] std::vector<llama::Token> tokens_of_text(const Settings& settings, const llama::Model& model,
                                                       bool parse_special);

/// How many chunks of `n_ctx` tokens there are, at most `wanted` if that is not negative. Throws
/// Error(invalid_argument) with two lines for a text of less than two chunks.
[[nodiscard]] int chunk_count(std::size_t n_tokens, int n_ctx, int wanted);

/// Chunk `number` of the text, its first token replaced by BOS if the model adds one.
[[nodiscard]] std::vector<llama::Token> chunk_of(const std::vector<llama::Token>& tokens, int number, int n_ctx,
                                                 const llama::Vocab& vocab);

/// Says on the log how long the rest will take, from the first pass.
void log_eta(const char* what, double seconds_per_pass, double passes_left);

}  // namespace common
