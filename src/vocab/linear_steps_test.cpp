#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ggml/gguf.h"
#include "llama/vocab.h"
#include "pretokenizer.h"
#include "test_support.h"
#include "test_vocab.h"

// Work on hostile input, counted in steps and not in seconds: the sources of src/vocab are compiled for this program
// with a call in front of every basic block. What PCRE2 does inside is not counted; linear_time_test.cpp judges that.

namespace {
std::uint64_t g_steps = 0;  // by one thread
}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {  // NOLINT(bugprone-reserved-identifier): the compiler's name for it
  ++g_steps;
}

namespace llama {
namespace {

std::uint64_t steps_of(const std::function<void()>& work) {
  const std::uint64_t before = g_steps;
  work();
  return g_steps - before;
}

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

constexpr std::size_t kMegabyte = 1U << 20;

// One word, only spaces, only emoji; then what is special about special tokens, line ends and broken text.
const std::vector<std::string> kMainUnits = {"a", " ", "😀"};
const std::vector<std::string> kUnits = {"a", " ", "😀", "<", "\n", "\xFF", "e\u0301", "日"};

struct Kind {
  const char* name;
  Vocab vocab;
};

std::vector<Kind> small_vocabularies() {
  std::vector<Kind> kinds;
  kinds.push_back({"spm", Vocab::load(testing::spm_metadata({"▁", "a", "aa", "aaaa", "▁▁", "▁▁▁▁"}), "spm")});
  kinds.push_back({"bpe", Vocab::load(testing::bpe_metadata(testing::some_merges(), "llama-bpe"), "bpe")});
  kinds.push_back({"wpm", Vocab::load(testing::wpm_metadata(), "wpm")});
  kinds.push_back({"ugm", Vocab::load(testing::ugm_metadata(), "ugm")});
  kinds.push_back({"rwkv", Vocab::load(testing::rwkv_metadata(), "rwkv")});
  kinds.push_back({"plamo2", Vocab::load(testing::plamo_metadata({{"a", -1}, {"aa", -1.5F}, {" ", -1}}), "plamo2")});
  return kinds;
}

// The logarithm in the merging of one long word may cost a twentieth more; quadratic work would be four times as much.
void expect_linear(const std::string& what, std::uint64_t half, std::uint64_t whole, std::size_t bytes) {
  EXPECT_GT(half, 0U) << what;
  EXPECT_LE(static_cast<double>(whole), 2.25 * static_cast<double>(half) + 10'000) << what;
  EXPECT_LE(whole / bytes, 600U) << what << ": " << whole << " steps for " << bytes << " bytes";
}

void expect_linear(const std::string& name, const Vocab& vocab, const std::vector<std::string>& units) {
  for (const std::string& unit : units) {
    const std::string whole = repeated(unit, kMegabyte);
    const std::string half = repeated(unit, kMegabyte / 2);
    const auto count = [&](const std::string& text) {
      return steps_of([&] { (void)vocab.tokenize(text, {.parse_special = true}); });
    };
    std::string label = name;
    label.append(", '").append(unit).append("'");
    expect_linear(label, count(half), count(whole), whole.size());
  }
}

TEST(LinearSteps, TwiceTheTextIsTwiceTheWorkForEveryAlgorithm) {
  for (const Kind& kind : small_vocabularies()) expect_linear(kind.name, kind.vocab, kUnits);
}

// A prompt of ten megabytes of what costs the most, the merging of one long word: as many steps for each byte as in
// one.
TEST(LinearSteps, TenMegabytesCostTenTimesWhatOneCosts) {
  const auto expect_ten_times = [](const Vocab& vocab, std::string_view unit) {
    const auto count = [&](std::size_t bytes) {
      const std::string text = repeated(unit, bytes);
      return static_cast<double>(steps_of([&] { (void)vocab.tokenize(text, {.parse_special = true}); }));
    };
    const double one = count(kMegabyte);
    EXPECT_LE(count(10 * kMegabyte), 11.5 * one) << "'" << unit << "'";
  };
  expect_ten_times(Vocab::load(testing::spm_metadata({"▁", "a", "aa", "aaaa", "▁▁", "▁▁▁▁"}), "spm"), "a");
  expect_ten_times(Vocab::load(testing::bpe_metadata(testing::some_merges(), "llama-bpe"), "bpe"), " ");
}

TEST(LinearSteps, TwiceTheTextIsTwiceTheWorkForRealVocabularies) {
  const auto shared = tandem::shared_dir();
  if (!shared || !std::filesystem::exists(*shared / "data" / "vocab")) GTEST_SKIP() << "no shared folder";
  for (const char* name : {"llama-spm", "llama3", "bert-bge", "ugm-t5", "rwkv-mini"}) {
    const std::string path = (*shared / "data" / "vocab" / (std::string(name) + ".gguf")).string();
    expect_linear(name, Vocab::load(ggml::gguf::File::open(path).metadata(), path), kMainUnits);
  }
}

TEST(LinearSteps, TwiceTheTextIsTwiceTheWorkForEverySplitter) {
  for (const PreTokenizerGroup& group : pre_tokenizer_groups()) {
    const Splitter splitter(group.name);
    std::vector<std::string_view> pieces;
    for (const std::string& unit : kUnits) {
      if (unit == "\xFF") continue;  // it is given valid text
      const std::string whole = repeated(unit, kMegabyte / 4);
      const std::string half = repeated(unit, kMegabyte / 8);
      const auto count = [&](const std::string& text) { return steps_of([&] { splitter.split(text, pieces); }); };
      expect_linear(std::string(group.name) + ", '" + unit + "'", count(half), count(whole), whole.size());
    }
  }
}

}  // namespace
}  // namespace llama
