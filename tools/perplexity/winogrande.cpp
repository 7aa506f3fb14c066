// Winogrande: which of two words fits into the gap. Lines are "number,sentence with _,word 1,word 2,answer".
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "ggml/error.h"
#include "ggml/log.h"
#include "modes.h"
#include "task.h"

namespace perplexity {
namespace {

/// What follows the gap is scored alone where it is long enough to tell: the words themselves differ in frequency.
constexpr std::size_t kLeastTail = 3;

struct Question {
  std::string before, after;  // of the gap
  std::array<std::string, 2> words;
  int answer = 0;  // 1 or 2
};

[[noreturn]] void fail(std::size_t line, const std::string& why) {
  throw ggml::Error(ggml::ErrorCode::invalid_file, ggml::strf("line %zu: %s", line, why.c_str()),
                    "a Winogrande file has lines such as: 1,Sarah beat Maria because _ was faster.,Sarah,Maria,1");
}

std::string unquoted(std::string text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

/// Splits from the right, since only the sentence may hold commas.
Question parse(std::string line, std::size_t number) {
  if (line.ends_with('\r')) line.pop_back();
  std::array<std::string, 3> tail;
  for (std::string& field : tail) {
    const std::size_t comma = line.rfind(',');
    if (comma == std::string::npos) fail(number, "five fields were expected");
    field = line.substr(comma + 1);
    line.resize(comma);
  }
  const std::size_t comma = line.find(',');
  if (comma == std::string::npos) fail(number, "five fields were expected");
  const std::string sentence = unquoted(line.substr(comma + 1));
  const std::size_t gap = sentence.find('_');
  if (gap == std::string::npos) fail(number, "the sentence has no _");
  if (tail[0] != "1" && tail[0] != "2") fail(number, "\"" + tail[0] + "\" is no answer 1 or 2");
  Question out;
  out.before = sentence.substr(0, gap);
  out.after = sentence.substr(gap + 1);
  out.words = {unquoted(tail[2]), unquoted(tail[1])};
  out.answer = tail[0][0] - '0';
  return out;
}

std::vector<Question> parse_all(const std::string& text) {
  std::vector<Question> out;
  std::istringstream in(text);
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty()) out.push_back(parse(line, number));
  }
  if (out.empty()) throw ggml::Error(ggml::ErrorCode::invalid_file, "the file holds no Winogrande tasks");
  return out;
}

std::array<double, 2> score(ContinuationScorer& scorer, const Question& question) {
  std::vector<std::vector<llama::Token>> texts;
  texts.reserve(2);
  std::array<std::size_t, 2> heads{};  // tokens up to the end of the word
  for (std::size_t i = 0; i < 2; ++i) {
    texts.push_back(scorer.tokenize(question.before + question.words[i] + question.after));
    heads[i] = scorer.tokenize(question.before + question.words[i]).size();
  }
  const auto prefix = static_cast<std::size_t>(common_prefix(texts));
  const bool tail_only = texts[0].size() > heads[0] + kLeastTail && texts[1].size() > heads[1] + kLeastTail;
  std::vector<Continuation> continuations;
  continuations.reserve(2);
  for (std::size_t i = 0; i < 2; ++i)
    continuations.push_back({texts[i], static_cast<int>(tail_only ? std::max(heads[i], prefix) : prefix)});
  const std::vector<std::vector<double>> scores = scorer.score(continuations);
  return {mean_of(scores[0]), mean_of(scores[1])};
}

}  // namespace

void run_winogrande(const Run& run) {
  ContinuationScorer scorer(run);
  const std::vector<Question> questions = parse_all(run.settings.prompt.prompt);
  const std::vector<std::size_t> tasks =
      choose_tasks(questions.size(), static_cast<std::size_t>(run.settings.perplexity.winogrande_tasks));
  ggml::logf(ggml::LogLevel::info, "winogrande: %zu of %zu tasks", tasks.size(), questions.size());
  std::size_t right = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Question& question = questions[tasks[i]];
    const std::array<double, 2> scores = score(scorer, question);
    const int chosen = scores[0] > scores[1] ? 1 : 2;
    right += chosen == question.answer ? 1 : 0;
    std::printf("%zu\t%.4lf\t%10.6f  %10.6f  %d  %d\n", i + 1,
                100 * static_cast<double>(right) / static_cast<double>(i + 1), scores[0], scores[1], chosen,
                question.answer);
    std::fflush(stdout);
  }
  constexpr std::size_t kFewest = 100;
  std::printf("\n");
  if (tasks.size() < kFewest) return;
  const auto n = static_cast<double>(tasks.size());
  const double share = static_cast<double>(right) / n;
  std::printf("Final Winogrande score(%zu tasks): %.4lf +/- %.4lf\n", tasks.size(), 100 * share,
              100 * std::sqrt(share * (1 - share) / (n - 1)));
}

}  // namespace perplexity
