// HellaSwag: which of four endings follows. Tasks have six lines: the text, the number of the right ending, the
// endings.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "ggml/error.h"
#include "ggml/log.h"
#include "modes.h"
#include "task.h"

namespace perplexity {
namespace {

constexpr std::size_t kEndings = 4;
constexpr std::size_t kLines = 2 + kEndings;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t right_ending(const std::vector<std::string>& lines, std::size_t task) {
  const std::string& line = lines[task * kLines + 1];
  constexpr std::string_view kNumbers = "0123";
  if (line.size() == 1 && kNumbers.find(line[0]) != std::string_view::npos) return kNumbers.find(line[0]);
  throw ggml::Error(ggml::ErrorCode::invalid_file,
                    ggml::strf("line %zu: \"%.40s\" is no number of an ending from 0 to %zu", task * kLines + 2,
                               line.c_str(), kEndings - 1),
                    "a HellaSwag file has six lines per task: text, number of the right ending, four endings");
}

/// Bounds of the share behind `right` of `n` (Wilson).
struct Interval {
  double low, high;
};
Interval wilson(double share, double n) {
  constexpr double kZ = 1.95996398454;  // 95 %
  const double z2 = kZ * kZ;
  const double center = (share + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kZ * std::sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n);
  return {center - half, center + half};
}

}  // namespace

void run_hellaswag(const Run& run) {
  ContinuationScorer scorer(run);
  const std::vector<std::string> lines = lines_of(run.settings.prompt.prompt);
  if (lines.empty() || lines.size() % kLines != 0) {
    throw ggml::Error(ggml::ErrorCode::invalid_file,
                      ggml::strf("%zu lines are no HellaSwag tasks of %zu lines each", lines.size(), kLines));
  }
  const std::vector<std::size_t> tasks =
      choose_tasks(lines.size() / kLines, static_cast<std::size_t>(run.settings.perplexity.hellaswag_tasks));
  ggml::logf(ggml::LogLevel::info, "hellaswag: %zu of %zu tasks", tasks.size(), lines.size() / kLines);
  std::printf("\ntask\tacc_norm\t95%% confidence interval\n");
  std::size_t right = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const std::size_t gold = right_ending(lines, tasks[i]);
    std::vector<std::vector<llama::Token>> texts;
    texts.reserve(kEndings);
    for (std::size_t ending = 0; ending < kEndings; ++ending)
      texts.push_back(scorer.tokenize(lines[tasks[i] * kLines] + " " + lines[tasks[i] * kLines + 2 + ending]));
    const int first = common_prefix(texts);
    std::vector<Continuation> continuations;
    continuations.reserve(kEndings);
    for (std::vector<llama::Token>& text : texts) continuations.push_back({std::move(text), first});
    const std::vector<std::vector<double>> scores = scorer.score(continuations);
    std::size_t best = 0;
    for (std::size_t ending = 1; ending < kEndings; ++ending)
      if (mean_of(scores[ending]) > mean_of(scores[best])) best = ending;
    right += best == gold ? 1 : 0;
    const double share = static_cast<double>(right) / static_cast<double>(i + 1);
    const Interval bounds = wilson(share, static_cast<double>(i + 1));
    std::printf("%zu\t%3.8lf%%\t[%3.4lf%%, %3.4lf%%]\n", i + 1, 100 * share, 100 * bounds.low, 100 * bounds.high);
    std::fflush(stdout);
  }
}

}  // namespace perplexity
