#include "llama/utf8.h"

#include <gtest/gtest.h>

namespace llama {
namespace {

TEST(Utf8, KnowsAnUnfinishedTailFromABrokenOne) {
  EXPECT_EQ(unfinished_utf8_bytes(""), 0U);
  EXPECT_EQ(unfinished_utf8_bytes("a"), 0U);
  EXPECT_EQ(unfinished_utf8_bytes("a\xC3"), 1U);
  EXPECT_EQ(unfinished_utf8_bytes("\xE2\x82"), 2U);
  EXPECT_EQ(unfinished_utf8_bytes("\xF0\x9F\x98"), 3U);
  EXPECT_EQ(unfinished_utf8_bytes("\xF0\x9F\x98\x80"), 0U);
  EXPECT_EQ(unfinished_utf8_bytes("\x80\x80\x80"), 0U);
  EXPECT_EQ(unfinished_utf8_bytes("\xFF"), 0U);
  EXPECT_EQ(unfinished_utf8_bytes("\xC0"), 0U) << "leads an overlong form only";
  EXPECT_EQ(unfinished_utf8_bytes("\xED\xA0"), 0U) << "a surrogate can never become valid";
  EXPECT_EQ(unfinished_utf8_bytes("\xF4\x90"), 0U);
}

TEST(Utf8, ReplacesEachInvalidByte) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a" + r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82("), r + r + "(");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), r + r);
  EXPECT_EQ(replace_invalid_utf8("plain text of more than eight bytes é"), "plain text of more than eight bytes é");
  EXPECT_TRUE(is_valid_utf8("日本 é 😀"));
  EXPECT_FALSE(is_valid_utf8("12345678\xFF"));
}

TEST(Utf8Stream, HoldsACutCharacterBack) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0"), "a");
  EXPECT_EQ(stream.push("\x9F"), "");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.held(), "\xF0\x9F\x98");
  EXPECT_EQ(stream.push("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.held(), "");
}

TEST(Utf8Stream, LosesNothingWhereverTheTextIsCut) {
  const std::string text = "aé日😀\xFF\xC3(z\xED\xA0\x80";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Utf8Stream stream;
    std::string out = stream.push(text.substr(0, cut));
    out += stream.push(text.substr(cut));
    out += stream.held();
    EXPECT_EQ(out, text) << cut;
  }
}

}  // namespace
}  // namespace llama
