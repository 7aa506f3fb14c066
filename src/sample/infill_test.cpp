#include "sample/infill.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sample/test_vocab.h"

namespace llama {
namespace {

constexpr Token kEos = 2, kHello = 3, kHe = 4, kWorld = 5, kX = 6;

std::vector<Token> run(std::initializer_list<std::pair<Token, double>> probabilities) {
  const Vocab vocab = testing::word_vocab({"hello", "he", "world", "x", "y", "z"});
  InfillStage stage(vocab);
  std::vector<ggml::Candidate> list;
  for (const auto& [token, p] : probabilities) list.push_back({static_cast<float>(std::log(p)), token});
  const std::size_t n = stage.apply(list, list.size());
  std::vector<Token> kept;
  for (std::size_t i = 0; i < n; ++i) kept.push_back(list[i].token);
  return kept;
}

TEST(Infill, AddsUpWhatBeginsAlikeAndDropsTheUnlikely) {
  // hello takes he: 0.7; x is below 0.2; of 0.7, 0.21 and 0.01 world holds 0.23, less than 1/3.
  EXPECT_EQ(run({{kHello, 0.4}, {kHe, 0.3}, {kWorld, 0.21}, {kX, 0.08}, {kEos, 0.01}}),
            (std::vector<Token>{kHello, kEos}));
  // The shorter one is the likelier: it takes the longer one.
  EXPECT_EQ(run({{kHe, 0.4}, {kWorld, 0.38}, {kHello, 0.2}, {kEos, 0.02}}), (std::vector<Token>{kHe, kWorld, kEos}));
}

TEST(Infill, EndsWhenTheEndIsLikelyForOneOfSoMany) {
  EXPECT_EQ(run({{kHello, 0.5}, {kWorld, 0.3}, {kEos, 0.1}, {kX, 0.1}}), (std::vector<Token>{kEos}));
}

TEST(Infill, EndsWhenNothingIsLikely) {
  EXPECT_EQ(run({{kHello, 0.19}, {kWorld, 0.19}, {kX, 0.19}, {7, 0.19}, {8, 0.19}, {0, 0.05}}),
            (std::vector<Token>{kEos}));
}

TEST(Infill, EndsWithTheTokenThatEndsATurnWhereThereIsOne) {
  const Vocab vocab = testing::word_vocab({"a", "b", "c", "d", "e", "f", "<|eot_id|>"});
  const Token eot = vocab.special().eot;
  ASSERT_EQ(eot, 9);
  InfillStage stage(vocab);
  std::vector<ggml::Candidate> list;
  for (Token token = 3; token < 9; ++token) list.push_back({0.0f, token});  // a sixth each
  ASSERT_EQ(stage.apply(list, list.size()), 1u);
  EXPECT_EQ(list[0].token, eot);
}

TEST(Infill, EqualTextsAddUpAndTheFirstOfThemStays) {
  const Vocab vocab = testing::word_vocab({"a", "b", "ab", "a"});
  InfillStage stage(vocab);
  std::vector<ggml::Candidate> list;
  // a 0.3 takes ab 0.25 and the other a 0.2: 0.75; b 0.25 holds a quarter, less than 1/3.
  for (const auto& [token, p] : {std::pair<Token, double>{3, 0.3}, {4, 0.25}, {5, 0.25}, {6, 0.2}})
    list.push_back({static_cast<float>(std::log(p)), token});
  ASSERT_EQ(stage.apply(list, list.size()), 1u);
  EXPECT_EQ(list[0].token, 3);
}

TEST(Infill, RowsWithoutATokenAreNoText) {
  EXPECT_EQ(run({{kHello, 0.9}, {999, 0.1}}), (std::vector<Token>{kHello}));
}

}  // namespace
}  // namespace llama
