#include "sample/dry.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "llama/sampling_ranges.h"
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

TEST(Dry, ATokenThatHoldsABreakerIsItsEndWhateverItEndsWith) {
  // "aa" ends with the beginning of "aa", too; that does not make what follows a part of the breaker.
  const Vocab vocab = word_vocab({"a", "b", "c", "aaa"});
  SamplingParams params = params_of({"aa"});
  params.dry_allowed_length = 1;
  Dry dry(params, vocab, 64);
  const Token a = vocab.find("a"), b = vocab.find("b"), long_a = vocab.find("aaa");
  for (const Token t : {a, b, long_a, a}) dry.accept(t);
  ASSERT_EQ(dry.penalties().size(), 1u) << "one token lies behind aaa";
  EXPECT_EQ(dry.penalties()[0].token, b);
}

/// The definition, breaker by breaker.
std::int64_t plain_limit(const std::vector<std::string>& breakers, const Vocab& vocab, const std::vector<Token>& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view piece = vocab.piece(text[text.size() - 1 - i], SpecialText::show);
    std::int64_t longest = -1;
    for (const std::string& breaker : breakers) {
      if (piece.find(breaker) != std::string_view::npos) longest = std::max<std::int64_t>(longest, 0);
      if (piece.find(breaker) != std::string_view::npos) continue;
      for (std::size_t n = 1; n < breaker.size(); ++n) {
        if (!piece.ends_with(breaker.substr(0, n))) continue;
        const std::vector<Token> tail = vocab.tokenize(breaker.substr(n), {});
        if (tail.size() > i) continue;
        bool equal = true;
        for (std::size_t k = 0; k < tail.size(); ++k) equal = equal && text[text.size() - i + k] == tail[k];
        if (equal) longest = std::max(longest, static_cast<std::int64_t>(tail.size()));
      }
    }
    if (longest >= 0) return static_cast<std::int64_t>(i) - longest;
  }
  return static_cast<std::int64_t>(text.size());
}

TEST(Dry, ManyBreakersAreRecognisedAsTheDefinitionSays) {
  const Vocab vocab = word_vocab({"a", "b", "c", "ab", "ba", "aab", "cc", "bca"});
  std::mt19937 random(6);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> breakers(random() % 6);
    for (std::string& breaker : breakers) {
      breaker.resize(1 + random() % 4);
      for (char& c : breaker) c = static_cast<char>('a' + random() % 3);
    }
    std::vector<Token> text;
    for (std::size_t n = 1 + random() % 12; n > 0; --n) text.push_back(static_cast<Token>(3 + random() % 8));
    const std::vector<Token> recent(text.rbegin(), text.rend());
    const Breakers known(breakers, vocab);
    std::int64_t limit = static_cast<std::int64_t>(text.size());
    for (std::size_t i = 0; i < recent.size(); ++i) {
      const auto tail = known.tail_behind(recent, i);
      if (!tail.has_value()) continue;
      limit = static_cast<std::int64_t>(i - *tail);
      break;
    }
    ASSERT_EQ(limit, plain_limit(breakers, vocab, text)) << "round " << round;
  }
}

TEST(Dry, AThousandBreakersCostOnePassOverTheVocabulary) {
  std::vector<std::string> words;
  words.reserve(50'000);
  for (int i = 0; i < 50'000; ++i) words.push_back("w" + std::to_string(i * 7919 % 1'000'003));
  const Vocab vocab = word_vocab(words);
  std::vector<std::string> breakers;
  breakers.reserve(kMaxDryBreakers);
  for (int i = 0; i < kMaxDryBreakers; ++i) breakers.push_back("w" + std::to_string(i) + "xyz");
  const std::clock_t begin = std::clock();
  const Breakers known(breakers, vocab);
  // One search per breaker takes a second and a half here; this one some 0.05.
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 0.7);
  EXPECT_FALSE(known.breaks(3));
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
