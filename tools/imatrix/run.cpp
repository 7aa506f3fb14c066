#include "run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "collector.h"
#include "common/log/standard_output.h"
#include "common/score/log_softmax.h"
#include "common/score/setup.h"
#include "common/score/windows.h"
#include "common/setup/output_file.h"
#include "common/setup/setup.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "statistics.h"

namespace imatrix {
namespace {

using common::Settings;
using llama::ImportanceMatrix;
using llama::Token;

/// Where the matrix goes, and in which format.
class Output {
 public:
  explicit Output(const common::ImatrixSettings& wanted) {
    legacy_ = wanted.legacy_format.value_or(wanted.output.ends_with(".dat"));
    path_ = !wanted.output.empty() ? wanted.output : legacy_ ? "imatrix.dat" : "imatrix.gguf";
    if (!legacy_ && !path_.ends_with(".gguf"))
      ggml::logf(ggml::LogLevel::warn,
                 "%s will be a GGUF file although its name does not end with .gguf; "
                 "--output-format dat writes the older format",
                 path_.c_str());
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  void save(const ImportanceMatrix& matrix) const { save_as(matrix, path_); }
  /// A copy that is not written again.
  void keep(const ImportanceMatrix& matrix) const { save_as(matrix, path_ + ".at_" + std::to_string(matrix.chunks)); }

 private:
  void save_as(const ImportanceMatrix& matrix, const std::string& path) const {
    if (legacy_) {
      matrix.save_legacy(path);
    } else {
      matrix.save_gguf(path);
    }
    ggml::logf(ggml::LogLevel::info, "stored the data of %lld chunks in %s", static_cast<long long>(matrix.chunks),
               path.c_str());
  }
  std::string path_;
  bool legacy_ = false;
};

ImportanceMatrix load_inputs(const std::vector<std::string>& paths) {
  ImportanceMatrix matrix;
  for (const std::string& path : paths) {
    const ImportanceMatrix one = ImportanceMatrix::load(path);
    ggml::logf(ggml::LogLevel::info, "%s: %zu weights, %lld chunks", path.c_str(), one.entries.size(),
               static_cast<long long>(one.chunks));
    matrix.merge(one);
  }
  return matrix;
}

/// Reads the text chunk by chunk.
class Reading {
 public:
  Reading(const Settings& settings, const llama::Model& model, const common::PlannedRun& planned)
      : settings_(settings),
        model_(model),
        collector_(CollectorOptions{settings.imatrix.process_output}),
        shape_(common::score_shape(settings)),
        tokens_(common::tokens_of_text(settings, model, settings.imatrix.parse_special)) {
    skip_chunks();
    n_chunk_ = common::chunk_count(tokens_.size(), shape_.n_ctx, settings.perplexity.chunks);
    shape_.n_seq = std::min(shape_.n_seq, std::max(n_chunk_, 1));
    context_ = common::make_score_context(settings, model, planned, shape_, &collector_);
    threads_ = common::thread_counts(settings).batch;
  }

  /// False when it was stopped.
  bool run(ImportanceMatrix& matrix, const Output& output, const std::atomic<bool>& stop) {
    const common::ImatrixSettings& wanted = settings_.imatrix;
    ggml::logf(ggml::LogLevel::info, "computing over %d chunks, n_ctx=%d, batch_size=%d, n_seq=%d", n_chunk_,
               shape_.n_ctx, settings_.context.n_batch, shape_.n_seq);
    const auto begin = std::chrono::steady_clock::now();
    for (int chunk = 0; chunk < n_chunk_ && !stop;) {
      // A batch ends where a file is due, so that the file has the chunks that its name or the user says.
      const int n = std::min(
          {shape_.n_seq, n_chunk_ - chunk, left(chunk, wanted.output_frequency), left(chunk, wanted.save_frequency)});
      evaluate(chunk, n);
      collector_.move_to(matrix);
      matrix.chunks += n;
      if (chunk == 0) {
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        common::log_eta("imatrix", seconds.count(), static_cast<double>(n_chunk_) / n);
      }
      chunk += n;
      if (chunk % wanted.output_frequency == 0 && chunk < n_chunk_) output.save(matrix);
      if (wanted.save_frequency > 0 && chunk % wanted.save_frequency == 0) output.keep(matrix);
    }
    if (wanted.perplexity) std::printf("\n");
    output.save(matrix);
    if (stop) return false;
    if (wanted.perplexity && n_chunk_ > 0) common::print_final_estimate(likelihood_, n_chunk_, shape_.n_ctx);
    return true;
  }

  [[nodiscard]] int chunk_size() const { return shape_.n_ctx; }

 private:
  static int left(int chunk, int frequency) { return frequency > 0 ? frequency - chunk % frequency : 1 << 20; }

  void skip_chunks() {
    const auto skipped =
        static_cast<std::size_t>(settings_.imatrix.first_chunk) * static_cast<std::size_t>(shape_.n_ctx);
    if (skipped >= tokens_.size()) {
      throw ggml::Error(
          ggml::ErrorCode::invalid_argument,
          ggml::strf("--chunk %d skips the whole text of %zu tokens", settings_.imatrix.first_chunk, tokens_.size()),
          "use a smaller number");
    }
    tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(skipped));
  }

  void evaluate(int begin, int n) {
    std::vector<common::Window> windows;
    windows.reserve(static_cast<std::size_t>(n));
    // All rows are asked for: layers may leave out rows whose logits nobody wants.
    for (int i = 0; i < n; ++i)
      windows.push_back({common::chunk_of(tokens_, begin + i, shape_.n_ctx, model_.vocab()), 0});
    const int first = shape_.n_ctx / 2;
    std::vector<std::vector<double>> scores(static_cast<std::size_t>(n));
    const int n_scores = shape_.n_ctx - 1 - first;
    for (std::vector<double>& one : scores) one.resize(static_cast<std::size_t>(n_scores));
    const auto width = static_cast<std::size_t>(model_.info().n_vocab);
    common::run_windows(*context_, windows, [&](const common::WindowRows& got) {
      if (!settings_.imatrix.perplexity) return;
      common::for_rows(threads_, got.n, [&](int row) {
        const int position = got.position + row;
        if (position < first || position >= shape_.n_ctx - 1) return;
        const auto next = (static_cast<std::size_t>(begin) + got.window) * static_cast<std::size_t>(shape_.n_ctx) +
                          static_cast<std::size_t>(position) + 1;
        const int at = position - first;
        scores[got.window][static_cast<std::size_t>(at)] =
            common::score_token(got.logits.subspan(static_cast<std::size_t>(row) * width, width), tokens_[next]).log_p;
      });
    });
    if (!settings_.imatrix.perplexity) return;
    for (int i = 0; i < n; ++i) {
      for (const double log_p : scores[static_cast<std::size_t>(i)]) likelihood_.add(log_p);
      std::printf("[%d]%.4lf,", begin + i + 1, likelihood_.perplexity());
    }
    std::fflush(stdout);
  }

  const Settings& settings_;
  const llama::Model& model_;
  Collector collector_;
  common::ScoreShape shape_;
  std::vector<Token> tokens_;
  int n_chunk_ = 0;
  std::unique_ptr<llama::Context> context_;
  int threads_ = 1;
  common::Likelihood likelihood_;
};

/// A weight that no row reached will be quantised as if all its columns counted alike.
void warn_of_gaps(const ImportanceMatrix& matrix) {
  std::size_t experts = 0;
  for (const auto& row : matrix.entries)
    experts += static_cast<std::size_t>(std::count(row.second.counts.begin(), row.second.counts.end(), 0.0F));
  if (experts > 0)
    ggml::logf(ggml::LogLevel::warn, "no token reached %zu expert matrices; a longer or more varied text would",
               experts);
}

}  // namespace

bool run(const Settings& settings, const std::atomic<bool>& stop) {
  const common::ImatrixSettings& wanted = settings.imatrix;
  if (wanted.show_statistics && wanted.inputs.empty()) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "--show-statistics needs a file", "give it with --in-file");
  }
  ImportanceMatrix matrix = load_inputs(wanted.inputs);
  if (wanted.show_statistics) {
    common::write_standard_output(statistics_table(matrix));
    return true;
  }
  const Output output(wanted);
  // A matrix that is read may be written again: that is how a run is taken up.
  common::check_output(output.path(), std::array{settings.model.path, settings.prompt.prompt_file});
  if (settings.prompt.prompt.empty() && !wanted.inputs.empty()) {
    ggml::logf(ggml::LogLevel::info, "no text is given: the files are merged");
    output.save(matrix);
    return true;
  }
  const common::PlannedRun planned = common::plan_scores(settings);
  const std::unique_ptr<llama::Model> model = common::load_model(settings, planned);
  Reading reading(settings, *model, planned);
  const std::string dataset = settings.prompt.prompt_file.empty() ? "(command line)" : settings.prompt.prompt_file;
  if (std::find(matrix.datasets.begin(), matrix.datasets.end(), dataset) == matrix.datasets.end())
    matrix.datasets.push_back(dataset);
  matrix.chunk_size = reading.chunk_size();
  const bool complete = reading.run(matrix, output, stop);
  warn_of_gaps(matrix);
  return complete;
}

}  // namespace imatrix
