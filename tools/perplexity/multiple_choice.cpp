// Multiple choice (ARC, MMLU, TruthfulQA). The file is binary: u32 tasks, u32 offset of each behind these, then per
// task the question and two lists of answers; a text is u32 length and bytes, a list u32 count, the answers, and an i32
// per answer that is 1 where it is right. The first list has one right answer, and is the one that counts.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "ggml/error.h"
#include "ggml/log.h"
#include "modes.h"
#include "task.h"

namespace perplexity {
namespace {

struct Question {
  std::string text;
  std::vector<std::string> answers;
  std::vector<std::int32_t> right;
};

[[noreturn]] void fail(const std::string& why) {
  throw ggml::Error(ggml::ErrorCode::invalid_file, "the file holds no multiple-choice tasks: " + why,
                    "give a binary task file with -bf");
}

/// Reads numbers and texts and never past the end.
class Cursor {
 public:
  Cursor(const std::string& bytes, std::size_t at) : bytes_(bytes), at_(at) {}
  std::uint32_t number() {
    std::uint32_t value = 0;
    if (bytes_.size() < at_ || bytes_.size() - at_ < sizeof(value)) fail("it ends early");
    std::memcpy(&value, bytes_.data() + at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }
  std::string text() {
    const std::uint32_t length = number();
    if (bytes_.size() - at_ < length) fail("a text runs past its end");
    at_ += length;
    return bytes_.substr(at_ - length, length);
  }
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] std::size_t left() const { return bytes_.size() - at_; }

 private:
  const std::string& bytes_;
  std::size_t at_;
};

Question parse(const std::string& bytes, std::size_t at) {
  Cursor cursor(bytes, at);
  Question out;
  out.text = cursor.text();
  const std::uint32_t n = cursor.number();
  if (n == 0 || n > cursor.left() / sizeof(std::uint32_t)) fail(ggml::strf("a task has %u answers", n));
  out.answers.reserve(n);
  out.right.reserve(n);
  for (std::uint32_t i = 0; i < n; ++i) out.answers.push_back(cursor.text());
  for (std::uint32_t i = 0; i < n; ++i) out.right.push_back(static_cast<std::int32_t>(cursor.number()));
  return out;
}

/// The answer with the greatest mean log-probability per token.
std::size_t best_answer(ContinuationScorer& scorer, const Question& question) {
  std::vector<std::vector<llama::Token>> texts;
  texts.reserve(question.answers.size());
  for (const std::string& answer : question.answers) texts.push_back(scorer.tokenize(question.text + " " + answer));
  const int first = common_prefix(texts);
  std::vector<Continuation> continuations;
  continuations.reserve(texts.size());
  for (std::vector<llama::Token>& text : texts) continuations.push_back({std::move(text), first});
  const std::vector<std::vector<double>> scores = scorer.score(continuations);
  std::size_t best = 0;
  for (std::size_t i = 1; i < scores.size(); ++i)
    if (mean_of(scores[i]) > mean_of(scores[best])) best = i;
  return best;
}

void print_share(const char* what, double share, double n) {
  std::printf("%s: %.4f +/- %.4f\n", what, 100 * share, n > 1 ? 100 * std::sqrt(share * (1 - share) / (n - 1)) : 0);
}

}  // namespace

void run_multiple_choice(const Run& run) {
  ContinuationScorer scorer(run);
  const std::string& bytes = run.settings.prompt.prompt;
  Cursor head(bytes, 0);
  const std::uint32_t n_tasks = head.number();
  if (n_tasks == 0 || n_tasks > head.left() / sizeof(std::uint32_t)) fail(ggml::strf("it says %u tasks", n_tasks));
  const std::size_t data = sizeof(std::uint32_t) * (std::size_t{1} + n_tasks);
  const std::vector<std::size_t> tasks =
      choose_tasks(n_tasks, static_cast<std::size_t>(run.settings.perplexity.multiple_choice_tasks));
  ggml::logf(ggml::LogLevel::info, "multiple choice: %zu of %u tasks", tasks.size(), n_tasks);
  std::size_t right = 0;
  double by_chance = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    Cursor offset(bytes, sizeof(std::uint32_t) * (1 + tasks[i]));
    const Question question = parse(bytes, data + offset.number());
    by_chance += 1 / static_cast<double>(question.answers.size());
    right += question.right[best_answer(scorer, question)] == 1 ? 1 : 0;
    std::printf("%zu\t%.8lf\n", i + 1, 100 * static_cast<double>(right) / static_cast<double>(i + 1));
    std::fflush(stdout);
  }
  const auto n = static_cast<double>(tasks.size());
  std::printf("\n");
  print_share("Final result", static_cast<double>(right) / n, n);
  print_share("Random chance", by_chance / n, n);
}

}  // namespace perplexity
