#include "engine/text_stream.h"

#include <gtest/gtest.h>

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
