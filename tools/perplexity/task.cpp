#include "task.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "common/score/log_softmax.h"
#include "common/score/setup.h"
#include "common/score/windows.h"
#include "common/setup/setup.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace perplexity {

using llama::Token;

ContinuationScorer::ContinuationScorer(const Run& run) : run_(run) {
  if (run.settings.prompt.prompt.empty())
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "no tasks were given", "pass their file with -f FILE");
  constexpr int kTexts = 4;  // as many as a question has answers, mostly
  n_ctx_ = common::score_shape(run.settings).n_ctx;
  n_seq_ = kTexts;
  context_ = common::make_score_context(run.settings, run.model, run.planned, {n_ctx_, n_seq_}, nullptr);
  threads_ = common::thread_counts(run.settings).batch;
}

std::vector<Token> ContinuationScorer::tokenize(const std::string& text) const {
  return run_.model.vocab().tokenize(text, {.add_special = true, .parse_special = false});
}

std::vector<std::vector<double>> ContinuationScorer::score(std::span<const Continuation> texts) {
  std::vector<std::vector<double>> out;
  out.reserve(texts.size());
  for (const Continuation& text : texts) {
    if (text.tokens.size() > static_cast<std::size_t>(n_ctx_)) {
      throw ggml::Error(ggml::ErrorCode::exceeds_limit,
                        ggml::strf("a task has %zu tokens, the context %d", text.tokens.size(), n_ctx_),
                        "set -c higher");
    }
    out.emplace_back(text.tokens.size() - static_cast<std::size_t>(text.first));
  }
  const auto width = static_cast<std::size_t>(run_.model.info().n_vocab);
  for (std::size_t begin = 0; begin < texts.size(); begin += static_cast<std::size_t>(n_seq_)) {
    const std::size_t n = std::min(static_cast<std::size_t>(n_seq_), texts.size() - begin);
    std::vector<common::Window> windows;
    windows.reserve(n);
    for (std::size_t i = begin; i < begin + n; ++i) {
      windows.push_back({texts[i].tokens, texts[i].first - 1});
      windows.back().tokens.pop_back();
    }
    common::run_windows(*context_, windows, [&](const common::WindowRows& got) {
      const Continuation& text = texts[begin + got.window];
      common::for_rows(threads_, got.n, [&](int row) {
        const int behind = got.position + row + 1;
        const auto next = static_cast<std::size_t>(behind);
        out[begin + got.window][next - static_cast<std::size_t>(text.first)] =
            common::score_token(got.logits.subspan(static_cast<std::size_t>(row) * width, width), text.tokens[next])
                .log_p;
      });
    });
  }
  return out;
}

int common_prefix(std::span<const std::vector<Token>> texts) {
  std::size_t shortest = texts.front().size();
  for (const std::vector<Token>& text : texts) shortest = std::min(shortest, text.size());
  std::size_t n = 0;
  while (n + 1 < shortest && std::all_of(texts.begin(), texts.end(),
                                         [&](const std::vector<Token>& text) { return text[n] == texts.front()[n]; }))
    ++n;
  return static_cast<int>(std::max<std::size_t>(n, 1));
}

std::vector<std::size_t> choose_tasks(std::size_t n_total, std::size_t n_wanted) {
  std::vector<std::size_t> order(n_total);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (n_wanted == 0 || n_wanted >= n_total) return order;
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): runs are to be compared
  for (std::size_t i = 0; i < n_wanted; ++i) std::swap(order[i], order[i + random() % (n_total - i)]);
  order.resize(n_wanted);
  return order;
}

double mean_of(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace perplexity
