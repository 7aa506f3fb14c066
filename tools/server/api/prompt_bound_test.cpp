#include "api/prompt_bound.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "ggml/gguf.h"
#include "test_support.h"

namespace server {
namespace {

// Whatever the text, it has no fewer tokens than that.
TEST(PromptBound, IsNeverAboveTheNumberOfTokens) {
  const std::string path = tandem::data_dir() / "models" / "llama.gguf";
  const auto file = ggml::gguf::File::open(path);
  const llama::Vocab vocab = llama::Vocab::load(file.metadata(), path);
  const PromptBound bound(vocab);
  constexpr const char* kParts[] = {"a",    " ", "the", "\n", "é", "e\u0301", "日本", "\u1112\u1161\u11ab",
                                    "\t\t", "0", "<s>", "{}", "😀"};
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (std::size_t n = random() % 60; n > 0; --n) text += kParts[random() % std::size(kParts)];
    for (const bool special : {false, true})
      ASSERT_LE(bound.least_tokens(text),
                vocab.tokenize(text, {.add_special = special, .parse_special = special}).size())
          << text;
  }
  for (llama::Token token = 0; token < vocab.n_tokens(); ++token) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += vocab.piece(token, llama::SpecialText::show);
    ASSERT_LE(bound.least_tokens(text), vocab.tokenize(text, {.parse_special = true}).size()) << text;
  }
  EXPECT_EQ(bound.least_tokens(""), 0U);
  EXPECT_GT(bound.least_tokens(std::string(1'000'000, 'a')), 10'000U);
}

}  // namespace
}  // namespace server
