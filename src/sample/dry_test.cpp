#include "sample/dry.h"

#include <gtest/gtest.h>

#include <random>

#include "sample/test_vocab.h"

namespace llama {
namespace {

using testing::word_vocab;

/// One token per letter of a-z, from id 3 on, then some longer ones.
const Vocab& letters() {
  static const Vocab vocab = [] {
    std::vector<std::string> words;
    for (char c = 'a'; c <= 'z'; ++c) words.emplace_back(1, c);
    words.emplace_back("q!");
    words.emplace_back("!");
    words.emplace_back("?");
    return word_vocab(words);
  }();
  return vocab;
}

Token letter(char c) {
  return letters().find(std::string(1, c));
}

SamplingParams params_of(std::vector<std::string> breakers) {
  SamplingParams params;
  params.dry_multiplier = 1;
  params.dry_base = 2;
  params.dry_allowed_length = 2;
  params.dry_breakers = std::move(breakers);
  return params;
}

std::vector<std::pair<Token, float>> penalties(const SamplingParams& params, const std::string& text,
                                               std::size_t last_n) {
  Dry dry(params, letters(), last_n);
  for (const char c : text) dry.accept(letter(c));
  std::vector<std::pair<Token, float>> list;
  for (const Dry::Penalty& p : dry.penalties()) list.emplace_back(p.token, p.amount);
  return list;
}

using List = std::vector<std::pair<Token, float>>;

TEST(Dry, PenalisesWhatWouldProlongARepetition) {
  // "abc" stood before and d followed: 1 * 2^(3 - 2).
  EXPECT_EQ(penalties(params_of({}), "abcdabc", 64), (List{{letter('d'), 2.0f}}));
  // ... x and then y followed "abc"; "zabc" is longer.
  EXPECT_EQ(penalties(params_of({}), "zabcxabcyzabc", 64), (List{{letter('x'), 4.0f}, {letter('y'), 2.0f}}));
}

TEST(Dry, LetsShortRepetitionsPass) {
  EXPECT_TRUE(penalties(params_of({}), "xcdabc", 64).empty());
  SamplingParams params = params_of({});
  params.dry_allowed_length = 4;
  EXPECT_TRUE(penalties(params, "abcdabc", 64).empty());
}

TEST(Dry, LooksBackOnlyOverItsWindow) {
  EXPECT_EQ(penalties(params_of({}), "abcdabc", 6), (List{{letter('d'), 1.0f}})) << "bc is left of abc";
  EXPECT_TRUE(penalties(params_of({}), "abcdabc", 4).empty());
}

TEST(Dry, ABreakerEndsTheSequence) {
  EXPECT_TRUE(penalties(params_of({"b"}), "abcdabc", 64).empty()) << "one token lies behind the breaker";
  EXPECT_EQ(penalties(params_of({"a"}), "abcdabc", 64), (List{{letter('d'), 1.0f}})) << "two lie behind it";
}

TEST(Dry, ABreakerOfSeveralTokensCountsFromItsEnd) {
  // "ab" is a + tail b: behind it lies c alone.
  EXPECT_TRUE(penalties(params_of({"ab"}), "abcdabc", 64).empty());
  EXPECT_EQ(penalties(params_of({"xa"}), "xabcdxabc", 64), (List{{letter('d'), 1.0f}}));
  EXPECT_EQ(penalties(params_of({"ax"}), "abcdabc", 64), (List{{letter('d'), 2.0f}}))
      << "an a without x breaks nothing";
}

TEST(Dry, NeverPenalisesABreaker) {
  EXPECT_TRUE(penalties(params_of({"d"}), "abcdabc", 64).empty());
  EXPECT_EQ(penalties(params_of({"dx"}), "abcdabc", 64), (List{{letter('d'), 2.0f}})) << "d only begins one";
}

TEST(Dry, TokensThatHoldAWholeBreakerBreakToo) {
  const Token q = letters().find("q!");
  Dry dry(params_of({"!"}), letters(), 64);
  for (const Token t : {letter('a'), letter('b'), q, letter('c'), letter('a'), letter('b'), q, letter('c')})
    dry.accept(t);
  EXPECT_TRUE(dry.penalties().empty());
}

TEST(Dry, TheExponentStopsBeforeAFloatOverflows) {
  std::string text(300, 'a');
  const List list = penalties(params_of({}), text, 1000);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].second, std::exp2(127.0f)) << "int(88.72 / ln 2) = 127";
  SamplingParams flat = params_of({});
  flat.dry_base = 1;
  EXPECT_EQ(penalties(flat, text, 1000)[0].second, 1.0f);
}

TEST(Dry, EqualsAPlainSearchOnRandomTexts) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::string text(1 + random() % 60, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    const std::size_t last_n = 1 + random() % 70;
    const std::string window = text.size() > last_n ? text.substr(text.size() - last_n) : text;
    std::vector<std::size_t> longest(3, 0);
    for (std::size_t end = 1; end < window.size(); ++end) {  // the text up to `end`, which window[end] followed
      std::size_t n = 0;
      while (n < end && window[end - 1 - n] == window[window.size() - 1 - n]) ++n;
      std::size_t& best = longest[static_cast<std::size_t>(window[end] - 'a')];
      best = std::max(best, n);
    }
    List want;
    for (char c = 'a'; c <= 'c'; ++c) {
      const std::size_t n = longest[static_cast<std::size_t>(c - 'a')];
      if (n >= 2 && window.size() > 2) want.emplace_back(letter(c), std::exp2(static_cast<float>(n - 2)));
    }
    EXPECT_EQ(penalties(params_of({}), text, last_n), want) << text << " " << last_n;
  }
}

}  // namespace
}  // namespace llama
