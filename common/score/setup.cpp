#include "common/score/setup.h"

#include <algorithm>

#include "common/setup/setup.h"
#include "ggml/error.h"
#include "ggml/kv_layout.h"
#include "ggml/log.h"

namespace common {
namespace {

constexpr int kDefaultChunk = 512;
constexpr int kMostSequences = 64;

/// Sequences take whole blocks of the cache.
int cells_of(const ScoreShape& shape) {
  constexpr int kBlock = ggml::kKvBlockTokens;
  return (shape.n_ctx + kBlock - 1) / kBlock * kBlock * shape.n_seq;
}

llama::ContextParams score_params(const Settings& settings, const llama::ModelInfo& info, const ScoreShape& shape,
                                  ggml::Observer* observer) {
  if (info.is_encoder) {
    throw ggml::Error(ggml::ErrorCode::unsupported, info.architecture + " models predict no tokens",
                      "use a model that generates text");
  }
  llama::ContextParams params = context_params(settings, info, shape.n_seq);
  params.n_ctx = cells_of(shape);
  params.n_batch = std::min(params.n_batch, shape.n_ctx * shape.n_seq);
  params.n_ubatch = std::min(params.n_ubatch, params.n_batch);
  params.observer = observer;
  return params;
}

}  // namespace

ScoreShape score_shape(const Settings& settings) {
  ScoreShape shape;
  shape.n_ctx = settings.context.n_ctx.value_or(kDefaultChunk);
  if (shape.n_ctx == 0) shape.n_ctx = kDefaultChunk;
  constexpr int kShortest = 4;
  if (shape.n_ctx < kShortest) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument,
                      "-c " + std::to_string(shape.n_ctx) + " leaves nothing to predict", "use at least 4");
  }
  shape.n_seq = std::clamp(settings.context.n_batch / shape.n_ctx, 1, kMostSequences);
  return shape;
}

PlannedRun plan_scores(const Settings& settings) {
  const ScoreShape shape = score_shape(settings);
  Settings in_chunks = settings;
  in_chunks.context.n_ctx = cells_of(shape);
  PlannedRun planned = plan_run(in_chunks, shape.n_seq);
  announce(planned);
  return planned;
}

std::unique_ptr<llama::Context> make_score_context(const Settings& settings, const llama::Model& model,
                                                   const PlannedRun& planned, const ScoreShape& shape,
                                                   ggml::Observer* observer) {
  llama::ContextParams params = score_params(settings, model.info(), shape, observer);
  params.trace = planned.context.trace;
  return std::make_unique<llama::Context>(model, planned.machine->pointers(), planned.plan(), params);
}

std::unique_ptr<llama::Context> make_score_context(const Settings& settings, const llama::Model& model,
                                                   ggml::Device& device, const ScoreShape& shape,
                                                   ggml::Observer* observer) {
  return std::make_unique<llama::Context>(model, device, score_params(settings, model.info(), shape, observer));
}

std::vector<llama::Token> tokens_of_text(const Settings& settings, const llama::Model& model, bool parse_special) {
  if (settings.prompt.prompt.empty())
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "no text was given", "pass a file with -f FILE");
  ggml::logf(ggml::LogLevel::info, "tokenizing the input ..");
  std::vector<llama::Token> tokens =
      model.vocab().tokenize(settings.prompt.prompt, {.add_special = true, .parse_special = parse_special});
  if (tokens.empty())
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "the vocabulary of the model has no token for the text",
                      "look at its tokens: llama-gguf FILE --json");
  return tokens;
}

int chunk_count(std::size_t n_tokens, int n_ctx, int wanted) {
  if (wanted == 0)
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "--chunks 0 leaves nothing to evaluate", "-1 means all");
  const auto n = static_cast<std::size_t>(n_ctx);
  if (n_tokens < 2 * n) {
    throw ggml::Error(
        ggml::ErrorCode::invalid_argument,
        ggml::strf("you need at least %zu tokens to evaluate perplexity with a context of %d", 2 * n, n_ctx),
        ggml::strf("the data file you provided tokenizes to only %zu tokens", n_tokens));
  }
  const int chunks = static_cast<int>(n_tokens / n);
  return wanted >= 0 ? std::min(wanted, chunks) : chunks;
}

std::vector<llama::Token> chunk_of(const std::vector<llama::Token>& tokens, int number, int n_ctx,
                                   const llama::Vocab& vocab) {
  const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(number) * n_ctx;
  std::vector<llama::Token> chunk(begin, begin + n_ctx);
  if (vocab.add_bos() && vocab.special().bos != llama::kNoToken) chunk.front() = vocab.special().bos;
  return chunk;
}

void log_eta(const char* what, double seconds_per_pass, double passes_left) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  double seconds = seconds_per_pass * passes_left;
  std::string hours;
  if (seconds >= kHour) {
    const int whole = static_cast<int>(seconds / kHour);
    hours = std::to_string(whole) + " hours ";
    seconds -= whole * kHour;
  }
  ggml::logf(ggml::LogLevel::info, "%s: %.2f seconds per pass - ETA %s%.2f minutes", what, seconds_per_pass,
             hours.c_str(), seconds / kMinute);
}

}  // namespace common
