#include <algorithm>
#include <cstdio>
#include <vector>

#include "common/score/log_softmax.h"
#include "common/score/setup.h"
#include "common/score/windows.h"
#include "common/setup/setup.h"
#include "divergence.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "logits_file.h"
#include "modes.h"

namespace perplexity {
namespace {

constexpr std::size_t kFewestForReport = 100;

void check(const Run& run, const LogitsHeader& header) {
  const int n_vocab = run.model.info().n_vocab;
  if (header.n_vocab == n_vocab) return;
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    ggml::strf("the file of --kl-divergence-base is of a vocabulary of %d, the model has %d",
                               header.n_vocab, n_vocab),
                    "compare a model with a quantisation of itself");
}

}  // namespace

void run_kl_divergence(const Run& run) {
  const common::PerplexitySettings& wanted = run.settings.perplexity;
  if (wanted.logits_file.empty()) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "--kl-divergence needs a file to compare with",
                      "make it with --kl-divergence-base FNAME and the original model, then give both options");
  }
  LogitsReader reader(wanted.logits_file);
  const LogitsHeader& header = reader.header();
  check(run, header);
  common::ScoreShape shape = common::score_shape(run.settings);
  if (run.settings.context.n_ctx && header.n_ctx > shape.n_ctx) {
    ggml::logf(ggml::LogLevel::warn, "the file was made with chunks of %d tokens; -c %d is not used", header.n_ctx,
               shape.n_ctx);
  }
  shape = {header.n_ctx, 1};
  const int n_chunk = wanted.chunks >= 0 ? std::min(wanted.chunks, header.n_chunk) : header.n_chunk;
  const auto context = common::make_score_context(run.settings, run.model, run.planned, shape, nullptr);
  const int threads = common::thread_counts(run.settings).batch;
  const auto rows = static_cast<std::size_t>(header.rows_per_chunk());
  const auto width = static_cast<std::size_t>(header.n_vocab);
  const std::size_t words = header.record_words();
  std::vector<std::uint16_t> records(rows * words);
  std::vector<PositionDivergence> positions(rows);
  DivergenceStats stats;
  std::fputs(DivergenceStats::table_head().c_str(), stdout);
  for (int chunk = 0; chunk < n_chunk; ++chunk) {
    reader.read(records);
    common::Window window{common::chunk_of(header.tokens, chunk, header.n_ctx, run.model.vocab()), header.n_ctx / 2};
    window.tokens.pop_back();
    common::run_windows(*context, {&window, 1}, [&](const common::WindowRows& got) {
      common::for_rows(threads, got.n, [&](int i) {
        const int in_chunk = got.position + i;
        const auto position = static_cast<std::size_t>(in_chunk);
        const std::size_t row = position - static_cast<std::size_t>(header.n_ctx / 2);
        std::vector<float> base(width);
        unpack_record(std::span(records).subspan(row * words, words), base);
        const auto next = static_cast<std::size_t>(chunk) * static_cast<std::size_t>(header.n_ctx) + position + 1;
        positions[row] =
            compare(got.logits.subspan(static_cast<std::size_t>(i) * width, width), base, header.tokens[next]);
      });
    });
    for (const PositionDivergence& position : positions) stats.add(position);
    std::fputs(stats.table_row(chunk + 1).c_str(), stdout);
    std::fflush(stdout);
  }
  if (stats.count() >= kFewestForReport) std::fputs(("\n" + stats.report()).c_str(), stdout);
}

}  // namespace perplexity
