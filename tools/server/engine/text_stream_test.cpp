#include "engine/text_stream.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

namespace server {
namespace {

std::string feed(TextStream& stream, const std::string& bytes, std::string& stopping_word) {
  std::string sent;
  for (const char c : bytes) {
    TextStream::Outcome outcome = stream.push(std::string(1, c));
    sent += outcome.text;
    if (!outcome.stopping_word.empty()) {
      stopping_word = outcome.stopping_word;
      return sent;
    }
  }
  return sent + stream.finish();
}

TEST(TextStream, SendsEverythingWhenNothingStopsIt) {
  TextStream stream({"END"});
  std::string word;
  EXPECT_EQ(feed(stream, "an EN that is no end: EN", word), "an EN that is no end: EN");
  EXPECT_TRUE(word.empty());
}

TEST(TextStream, EndsBeforeAStopStringWhereverItIsCut) {
  const std::string text = "one two STOP three";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    TextStream stream({"STOP"});
    const TextStream::Outcome first = stream.push(text.substr(0, cut));
    if (!first.stopping_word.empty()) {
      EXPECT_EQ(first.text, "one two ");
      continue;
    }
    const TextStream::Outcome second = stream.push(text.substr(cut));
    EXPECT_EQ(first.text + second.text, "one two ") << "cut at " << cut;
    EXPECT_EQ(second.stopping_word, "STOP") << "cut at " << cut;
  }
}

TEST(TextStream, TakesTheStopStringThatComesFirst) {
  TextStream stream({"cc", "b"});
  const TextStream::Outcome outcome = stream.push("aabcc");
  EXPECT_EQ(outcome.text, "aa");
  EXPECT_EQ(outcome.stopping_word, "b");
}

// What a search of all the text that has arrived, anew after each piece, would send and when it would stop.
std::string plain_search(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
                         std::string& word) {
  std::string all;
  for (const std::string& piece : pieces) {
    all += piece;
    std::size_t first = std::string::npos;
    for (const std::string& stop : stops) {
      const std::size_t at = all.find(stop);
      if (at >= first) continue;
      first = at;
      word = stop;
    }
    if (first != std::string::npos) return all.substr(0, first);
  }
  return all;
}

TEST(TextStream, FindsOverlappingStopStringsWhereverTheTextIsCut) {
  std::mt19937 random(11);
  const auto text_of = [&](std::size_t n_characters) {
    std::string text;
    for (; n_characters > 0; --n_characters) text += std::array{"a", "b", "é"}[random() % 3];
    return text;
  };
  int n_stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (std::size_t n = 1 + random() % 3; n > 0; --n) stops.push_back(text_of(3 + random() % 5));
    std::vector<std::string> pieces;  // of whole characters: inside of one nothing is searched
    for (std::size_t n = random() % 20; n > 0; --n) pieces.push_back(text_of(random() % 4));
    std::string wanted_word, word, sent;
    const std::string wanted = plain_search(pieces, stops, wanted_word);
    TextStream stream(stops);
    for (const std::string& piece : pieces) {
      const TextStream::Outcome outcome = stream.push(piece);
      sent += outcome.text;
      word = outcome.stopping_word;
      if (!word.empty()) break;
    }
    if (word.empty()) sent += stream.finish();
    ASSERT_EQ(sent, wanted) << round;
    ASSERT_EQ(word, wanted_word) << round;
    n_stopped += word.empty() ? 0 : 1;
  }
  EXPECT_GT(n_stopped, 300);
}

// A long stop string holds all the text back: the others must not be looked for in all of it again and again.
TEST(TextStream, TextThatIsHeldBackIsSearchedOnce) {
  std::vector<std::string> stops = {std::string(60'000, 'a') + "b"};
  for (int i = 0; i < 1000; ++i) stops.push_back("aaa" + std::to_string(i));
  TextStream stream(stops);
  std::string sent;
  for (int i = 0; i < 15'000; ++i) sent += stream.push("aaaa").text;
  EXPECT_EQ(sent, "");
  EXPECT_EQ(stream.push("b").stopping_word, stops.front());
}

TEST(TextStream, HoldsBackOnlyWhatMayBecomeAStopString) {
  TextStream stream({"abcd"});
  EXPECT_EQ(stream.push("xyzab").text, "xyz");
  EXPECT_EQ(stream.push("c").text, "");
  EXPECT_EQ(stream.push("e").text, "abce");
}

TEST(TextStream, HoldsBackAnUnfinishedCharacter) {
  TextStream stream({});
  const TextStream::Outcome first = stream.push("caf\xc3");
  EXPECT_EQ(first.text + stream.push("\xa9!").text, "caf\xc3\xa9!");
  EXPECT_TRUE(first.incomplete_character);
}

TEST(TextStream, DropsAnUnfinishedCharacterAtTheEnd) {
  TextStream stream({});
  std::string sent = stream.push("ok\xe2\x82").text;
  sent += stream.finish();
  EXPECT_EQ(sent, "ok");
}

TEST(TextStream, KnowsTheIndentationOfTheLastLine) {
  TextStream stream({});
  (void)stream.push("x");
  EXPECT_EQ(stream.indentation(), -1);
  (void)stream.push("\n    ");
  EXPECT_EQ(stream.indentation(), -1);
  (void)stream.push("y = 1");
  EXPECT_EQ(stream.indentation(), 4);
  EXPECT_TRUE(stream.has_new_line());
}

TEST(TextStream, IgnoresEmptyStopStrings) {
  TextStream stream({""});
  EXPECT_EQ(stream.push("abc").text, "abc");
}

}  // namespace
}  // namespace server
