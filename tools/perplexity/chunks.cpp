#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "common/score/log_softmax.h"
#include "common/score/setup.h"
#include "common/score/windows.h"
#include "common/setup/setup.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "logits_file.h"
#include "modes.h"

namespace perplexity {
namespace {

using common::Likelihood;
using common::Window;
using common::WindowRows;
using llama::Token;

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Evaluates chunks and keeps the log-probability of each predicted token, in the order of the text.
class ChunkPass {
 public:
  ChunkPass(const Run& run, const common::ScoreShape& shape, const std::vector<Token>& tokens, LogitsWriter* writer)
      : run_(run),
        shape_(shape),
        tokens_(tokens),
        writer_(writer),
        context_(common::make_score_context(run.settings, run.model, run.planned, shape, nullptr)),
        threads_(common::thread_counts(run.settings).batch) {}

  /// log-probabilities [rows_per_chunk, n] of chunks [begin, begin + n).
  [[nodiscard]] std::vector<std::vector<double>> evaluate(int begin, int n) {
    header_.n_ctx = shape_.n_ctx;
    header_.n_vocab = run_.model.info().n_vocab;
    const auto rows = static_cast<std::size_t>(header_.rows_per_chunk());
    std::vector<std::vector<double>> out(static_cast<std::size_t>(n), std::vector<double>(rows));
    if (writer_ != nullptr) records_.resize(static_cast<std::size_t>(n) * rows * header_.record_words());
    std::vector<Window> windows;
    windows.reserve(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) {
      Window window{common::chunk_of(tokens_, begin + i, shape_.n_ctx, run_.model.vocab()), shape_.n_ctx / 2};
      window.tokens.pop_back();  // nothing in the chunk says what follows its last token
      windows.push_back(std::move(window));
    }
    common::run_windows(*context_, windows, [&](const WindowRows& got) {
      common::for_rows(threads_, got.n, [&](int i) { score(got, begin, i, out[got.window]); });
    });
    if (writer_ != nullptr) writer_->write(records_);
    return out;
  }

 private:
  void score(const WindowRows& got, int begin, int i, std::vector<double>& out) {
    const auto width = static_cast<std::size_t>(header_.n_vocab);
    const std::span<const float> logits = got.logits.subspan(static_cast<std::size_t>(i) * width, width);
    const auto chunk = static_cast<std::size_t>(begin) + got.window;
    const int in_chunk = got.position + i;
    const auto position = static_cast<std::size_t>(in_chunk);
    const Token next = tokens_[chunk * static_cast<std::size_t>(shape_.n_ctx) + position + 1];
    const std::size_t row = position - static_cast<std::size_t>(shape_.n_ctx / 2);
    if (writer_ == nullptr) {
      out[row] = common::score_token(logits, next).log_p;
      return;
    }
    const std::size_t words = header_.record_words();
    const std::size_t at = (got.window * static_cast<std::size_t>(header_.rows_per_chunk()) + row) * words;
    out[row] = pack_record(logits, next, std::span(records_).subspan(at, words));
  }

  const Run& run_;
  const common::ScoreShape shape_;
  const std::vector<Token>& tokens_;
  LogitsWriter* writer_;
  std::unique_ptr<llama::Context> context_;
  const int threads_;
  LogitsHeader header_;
  std::vector<std::uint16_t> records_;
};

void print_running(const common::PerplexitySettings& wanted, int chunk, int tokens, const Likelihood& likelihood) {
  if (wanted.output_type == 0) {
    std::printf("[%d]%.4lf,", chunk, likelihood.perplexity());
  } else {
    std::printf("%8d  %.4lf  %4lf  %4lf\n", tokens, likelihood.perplexity(), likelihood.mean(),
                likelihood.mean_error());
  }
  std::fflush(stdout);
}

void run_plain(const Run& run, const std::vector<Token>& tokens) {
  const common::PerplexitySettings& wanted = run.settings.perplexity;
  common::ScoreShape shape = common::score_shape(run.settings);
  const int n_chunk = common::chunk_count(tokens.size(), shape.n_ctx, wanted.chunks);
  shape.n_seq = std::min(shape.n_seq, std::max(n_chunk, 1));
  std::optional<LogitsWriter> writer;
  if (!wanted.logits_file.empty()) {
    const auto kept = static_cast<std::ptrdiff_t>(n_chunk) * shape.n_ctx;
    writer.emplace(
        wanted.logits_file,
        LogitsHeader{shape.n_ctx, run.model.info().n_vocab, n_chunk, {tokens.begin(), tokens.begin() + kept}});
  }
  ggml::logf(ggml::LogLevel::info,
             "perplexity: calculating perplexity over %d chunks, n_ctx=%d, batch_size=%d, n_seq=%d", n_chunk,
             shape.n_ctx, run.settings.context.n_batch, shape.n_seq);
  ChunkPass pass(run, shape, tokens, writer ? &*writer : nullptr);
  Likelihood likelihood;
  const Stopwatch clock;
  for (int chunk = 0; chunk < n_chunk; chunk += shape.n_seq) {
    if (run.stop) throw ggml::Error(ggml::ErrorCode::cancelled, "stopped: nothing was kept");
    const int n = std::min(shape.n_seq, n_chunk - chunk);
    const std::vector<std::vector<double>> scores = pass.evaluate(chunk, n);
    if (chunk == 0) common::log_eta("perplexity", clock.seconds(), static_cast<double>(n_chunk) / shape.n_seq);
    for (int i = 0; i < n; ++i) {
      for (const double log_p : scores[static_cast<std::size_t>(i)]) likelihood.add(log_p);
      print_running(wanted, chunk + i + 1, (chunk + i) * shape.n_ctx, likelihood);
    }
  }
  std::printf("\n");
  if (writer) writer->finish();
  if (n_chunk > 0) common::print_final_estimate(likelihood, n_chunk, shape.n_ctx);
}

/// Windows that overlap: each token but those of the first window is predicted from nearly n_ctx tokens.
void run_strided(const Run& run, const std::vector<Token>& tokens) {
  const common::PerplexitySettings& wanted = run.settings.perplexity;
  common::ScoreShape shape = common::score_shape(run.settings);
  shape.n_ctx += wanted.stride / 2;
  shape.n_seq = 1;
  if (wanted.stride >= shape.n_ctx) {
    throw ggml::Error(
        ggml::ErrorCode::invalid_argument,
        ggml::strf("--ppl-stride %d leaves no context in windows of %d tokens", wanted.stride, shape.n_ctx),
        "use a stride below the context size");
  }
  const auto length = static_cast<std::size_t>(shape.n_ctx);
  if (tokens.size() < 2 * length) (void)common::chunk_count(tokens.size(), shape.n_ctx, -1);  // says what is missing
  const auto stride = static_cast<std::size_t>(wanted.stride);
  std::size_t n_windows = (tokens.size() - length + stride - 1) / stride;
  if (wanted.chunks >= 0) n_windows = std::min(n_windows, static_cast<std::size_t>(wanted.chunks));
  const auto context = common::make_score_context(run.settings, run.model, run.planned, shape, nullptr);
  const int threads = common::thread_counts(run.settings).batch;
  const auto width = static_cast<std::size_t>(run.model.info().n_vocab);
  const llama::Vocab& vocab = run.model.vocab();
  ggml::logf(ggml::LogLevel::info, "perplexity: calculating perplexity over %zu windows, n_ctx=%d, stride=%d",
             n_windows, shape.n_ctx, wanted.stride);
  Likelihood likelihood;
  const Stopwatch clock;
  for (std::size_t i = 0; i < n_windows; ++i) {
    const std::size_t begin = i * stride;
    Window window;
    window.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                         tokens.begin() + static_cast<std::ptrdiff_t>(begin + length - 1));
    if (vocab.add_bos()) window.tokens.front() = vocab.special().bos;
    window.first = shape.n_ctx - wanted.stride - 1;
    std::vector<double> scores(stride);
    common::run_windows(*context, {&window, 1}, [&](const WindowRows& got) {
      common::for_rows(threads, got.n, [&](int row) {
        const int in_window = got.position + row;
        const auto position = static_cast<std::size_t>(in_window);
        scores[position - static_cast<std::size_t>(window.first)] =
            common::score_token(got.logits.subspan(static_cast<std::size_t>(row) * width, width),
                                tokens[begin + position + 1])
                .log_p;
      });
    });
    for (const double log_p : scores) likelihood.add(log_p);
    if (i == 0) common::log_eta("perplexity", clock.seconds(), static_cast<double>(n_windows));
    if (wanted.output_type == 0) {
      std::printf("[%zu]%.4lf,", i + 1, likelihood.perplexity());
    } else {
      std::printf("%8zu  %.4lf\n", begin, likelihood.perplexity());
    }
    std::fflush(stdout);
  }
  std::printf("\n");
}

}  // namespace

void run_chunks(const Run& run) {
  const std::vector<Token> tokens = common::tokens_of_text(run.settings, run.model, false);
  if (run.settings.perplexity.stride > 0) {
    run_strided(run, tokens);
  } else {
    run_plain(run, tokens);
  }
}

}  // namespace perplexity
