#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>

#include "ggml/gguf.h"
#include "llama/vocab.h"
#include "pretokenizer.h"
#include "test_support.h"
#include "test_vocab.h"

// Hostile inputs of a megabyte: quadratic code would not end within the test's time limit. linear_steps_test.cpp counts
// the work of this code; what the regular expressions do is judged here, by the growth of the processor time.

namespace llama {
namespace {

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

const char* const kUnits[] = {"a", " ",  "\n", " \n", "\t", "😀",  "7",       "日",     "я",      "é",
                              "A", "aB", "<",  "<|",  "'",  "a ", "e\u0301", "\u2028", "\u3042", "l "};
// What one token's merges, a special token's search and bad bytes make of it; the other units are the splitters'
// concern.
const char* const kMainUnits[] = {"a", " ", "\n", "😀", "<", "\xFF"};

// Of this thread, so that other work on the machine does not count.
double seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

void expect_linear(const std::string& name, const Vocab& vocab) {
  for (const char* unit : kMainUnits) {
    const std::string half = repeated(unit, 512 * 1024);
    const std::string whole = repeated(unit, 1024 * 1024);
    std::size_t n_half = 0;
    std::size_t n_whole = 0;
    const double t_half = seconds([&] { n_half = vocab.tokenize(half, {.parse_special = true}).size(); });
    const double t_whole = seconds([&] { n_whole = vocab.tokenize(whole, {.parse_special = true}).size(); });
    EXPECT_LE(n_whole, 2 * n_half + 2);
    if (t_whole > 0.5) {
      std::printf("%s, '%s': %.2f s for 0.5 MiB, %.2f s for 1 MiB (x %.1f)\n", name.c_str(), unit, t_half, t_whole,
                  t_whole / t_half);
    }
  }
}

TEST(LinearTime, EveryAlgorithmEndsOnAMegabyteOfOneThing) {
  expect_linear("spm", Vocab::load(testing::spm_metadata({"▁", "a", "aa", "aaaa", "▁▁", "▁▁▁▁"}), "spm"));
  expect_linear("bpe", Vocab::load(testing::bpe_metadata(testing::some_merges(), "llama-bpe"), "bpe"));
  expect_linear("wpm", Vocab::load(testing::wpm_metadata(), "wpm"));
  expect_linear("ugm", Vocab::load(testing::ugm_metadata(), "ugm"));
  expect_linear("rwkv", Vocab::load(testing::rwkv_metadata(), "rwkv"));
  expect_linear("plamo2", Vocab::load(testing::plamo_metadata({{"a", -1}, {"aa", -1.5F}, {" ", -1}}), "plamo2"));
}

// Four times the text may take four times as long; sixteen times would be quadratic. Short times are noise.
TEST(LinearTime, EveryPreTokenizerTakesTimeInProportionToTheText) {
  constexpr double kNoise = 0.005, kMostGrowth = 9;
  // Quadratic code would take seconds for it. The expressions themselves are not compiled with a sanitizer.
  const std::size_t n_bytes = tandem::is_sanitized() ? 32 * 1024 : 128 * 1024;
  for (const PreTokenizerGroup& group : pre_tokenizer_groups()) {
    const Splitter splitter(group.name);
    std::vector<std::string_view> pieces;
    const auto time = [&](const std::string& text) {
      const double t = seconds([&] { splitter.split(text, pieces); });
      std::size_t total = 0;
      for (const std::string_view piece : pieces) total += piece.size();
      EXPECT_EQ(total, text.size());
      return t;
    };
    for (const char* unit : kUnits) {
      for (const char* tail : {"", "x", "日", "!", "\n"}) {
        const std::string quarter = repeated(unit, n_bytes / 4) + tail;
        const std::string whole = repeated(unit, n_bytes) + tail;
        double growth = 0;
        for (int attempt = 0; attempt < 3; ++attempt) {
          const double t_quarter = time(quarter);
          const double t_whole = time(whole);
          growth = t_whole / std::max(t_quarter, kNoise);
          if (growth < kMostGrowth) break;
        }
        EXPECT_LT(growth, kMostGrowth) << group.name << ", '" << unit << "', then '" << tail << "'";
      }
    }
  }
}

TEST(LinearTime, ManySpecialTokensDoNotSlowTheSearch) {
  ggml::gguf::Metadata m = testing::spm_metadata({});
  std::vector<std::string> texts(m.get_array("tokenizer.ggml.tokens")->strings);
  std::vector<std::int32_t> types(texts.size(), 6);
  for (int n = 1; n <= 31; ++n) texts.push_back(std::string(static_cast<std::size_t>(n), ' '));
  for (int n = 0; n < 6000; ++n) texts.push_back("<unused" + std::to_string(n) + ">");
  types.resize(texts.size(), 4);
  m.set_strings("tokenizer.ggml.tokens", texts);
  m.set_i32s("tokenizer.ggml.token_type", types);
  m.set_f32s("tokenizer.ggml.scores", std::vector<float>(texts.size(), 0.0F));
  const Vocab vocab = Vocab::load(m, "many");
  expect_linear("many special tokens", vocab);
  const auto tokens = vocab.tokenize(std::string(63, ' '), {});
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(vocab.text(tokens[0]).size(), 31U);
  EXPECT_EQ(vocab.text(tokens[1]).size(), 31U);
  EXPECT_EQ(vocab.text(tokens[2]).size(), 1U);
}

TEST(LinearTime, TheBigVocabulariesEndToo) {
  const auto shared = tandem::shared_dir();
  if (!shared || !std::filesystem::exists(*shared / "data" / "vocab")) GTEST_SKIP() << "no shared folder";
  for (const char* name : {"llama3", "gemma3-spm"}) {
    const std::string path = (*shared / "data" / "vocab" / (std::string(name) + ".gguf")).string();
    expect_linear(name, Vocab::load(ggml::gguf::File::open(path).metadata(), path));
  }
}

}  // namespace
}  // namespace llama
