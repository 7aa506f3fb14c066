#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "common/json/json_fault.h"
#include "common/json/parse_json.h"
#include "test_support.h"

namespace common {
namespace {

std::string message_of(std::string_view text) {
  try {
    (void)parse_json(text, "it is");
  } catch (const ggml::Error& error) {
    EXPECT_EQ(error.code(), ggml::ErrorCode::invalid_argument);
    return error.message();
  }
  return "no error";
}

TEST(ParseJson, SaysWhereAndWhatInItsOwnWords) {
  const auto expect = [](std::string_view text, const char* message) {
    EXPECT_EQ(message_of(text), "it is not valid JSON: " + std::string(message)) << text;
  };
  expect("{bad", "line 1, column 2 (byte 2 of 4): a key in double quotes was expected, got 'bad'");
  expect("{'a': 1}", "line 1, column 2 (byte 2 of 8): keys are written in double quotes, got a single one");
  expect("{\"a\": 'x'}", "line 1, column 7 (byte 7 of 10): texts are written in double quotes, got a single one");
  expect("{\"a\" 1}", "line 1, column 6 (byte 6 of 7): a ':' behind the key was expected, got '1'");
  expect("{\"a\": 1,\n}", "line 2, column 1 (byte 10 of 10): a comma stands before the closing '}'");
  expect("[1,\n 2,]", "line 2, column 4 (byte 8 of 8): a comma stands before the closing ']'");
  expect("[1 2]", "line 1, column 4 (byte 4 of 5): a ',' or ']' was expected, got '2'");
  expect("[NaN]", "line 1, column 2 (byte 2 of 5): 'NaN' is no JSON value: the words are true, false and null");
  expect("True", "line 1, column 1 (byte 1 of 4): 'True' is no JSON value: the words are true, false and null");
  expect("{}x", "line 1, column 3 (byte 3 of 3): something follows behind the JSON value: 'x'");
  expect("[/*x*/1]", "line 1, column 2 (byte 2 of 8): JSON has no comments, got '/'");
  expect("[1e400]", "line 1, column 2 (byte 2 of 7): this number is too large; 1.7e308 is the largest");
  expect("[01]", "line 1, column 3 (byte 3 of 4): a number may not begin with 0");
  expect("[1.]", "line 1, column 4 (byte 4 of 4): a digit behind the '.' was expected, got ']'");
  expect("[\"\\q\"]", "line 1, column 3 (byte 3 of 6): there is no escape \\q; a backslash itself is written \\\\");
  expect("[\"\\ud800\"]", "line 1, column 3 (byte 3 of 10): half a surrogate pair is no character");
  expect("[\"é\n\"]", "line 1, column 4 (byte 5 of 7): the byte 0x0A in a text must be written as \\n");
  expect("[\"\xFF\"]", "line 1, column 3 (byte 3 of 5): the byte 0xFF is not part of valid UTF-8");
  expect(std::string_view("\0", 1), "line 1, column 1 (byte 1 of 1): a value was expected, got the byte 0x00");
}

TEST(ParseJson, ACutTextIsCalledThat) {
  EXPECT_EQ(
      message_of(""),
      "it is not valid JSON: line 1, column 1 (byte 0 of 0): it ends too early, after 0 bytes: a value was expected, "
      "got the end of the text");
  EXPECT_NE(
      message_of("[\n\"abc").find("it ends too early, after 6 bytes: a text that begins in line 2, column 1 is never"),
      std::string::npos);
}

TEST(ParseJson, RefusesDeepNestingBeforeItCostsStack) {
  EXPECT_NE(
      message_of(std::string(1'000'000, '[')).find("(byte 513 of 1000000): arrays and objects nest deeper than 512"),
      std::string::npos);
  EXPECT_EQ(message_of(std::string(512, '[') + std::string(512, ']')), "no error");
  EXPECT_EQ(message_of("{\"a\": \"" + std::string(2000, '[') + "\\\"[\"}"), "no error");
}

TEST(ParseJson, BuildsWhatTheLibraryBuildsRepeatedKeysIncluded) {
  for (const char* text :
       {"{}", "[]", "null", "-7", "18446744073709551615", "1.5e3", "\"\\ud83d\\ude00\"", R"({"a":1,"b":2,"a":3})",
        R"({"b":{"x":1,"x":[2,{"y":3}]},"a":[],"b":[true,false,null],"c":{},"a":{"z":{}}})",
        R"([{"k":1,"k":2,"k":3},[[],[{}]],"",{"":0,"":1}])"})
    EXPECT_EQ(parse_json(text, "it is").dump(), nlohmann::ordered_json::parse(text).dump()) << text;
}

// The library compares each key with all before it: of so many that takes minutes.
TEST(ParseJson, AnObjectOfAMillionMembersTakesNoLongerThanAListOfThem) {
  std::string text = "{";
  for (int i = 0; i < 1'000'000; ++i) text += "\"key " + std::to_string(i % 999'999) + "\":" + std::to_string(i) + ",";
  text.back() = '}';
  const nlohmann::ordered_json value = parse_json(text, "it is");
  EXPECT_EQ(value.size(), 999'999u);
  EXPECT_EQ(value.begin().key(), "key 0");
  EXPECT_EQ(value.begin().value(), 999'999) << "the last value of a key counts, at the first one's place";
}

TEST(ParseJson, WithoutAMessageWhatIsNoJsonIsNothing) {
  EXPECT_EQ(try_parse_json("[1]"), nlohmann::ordered_json::array({1}));
  for (const std::string& text : {std::string("{"), std::string("[1]\0", 4), std::string(1'000'000, '['),
                                  std::string(513, '[') + std::string(513, ']')})
    EXPECT_FALSE(try_parse_json(text).has_value()) << text.substr(0, 20);
}

std::string list_of(std::size_t n, std::string_view item) {
  std::string text = "[";
  for (std::size_t i = 0; i < n; ++i) text.append(i == 0 ? "" : ",").append(item);
  return text + "]";
}

TEST(ParseJson, RefusesATreeThatTakesTooMuchMemoryAndSaysAfterHowManyValues) {
  const std::size_t n_texts = kMaxJsonTreeBytes / (16 + kJsonNodeBytes) - 1;  // the list itself counts as one
  EXPECT_EQ(message_of(list_of(n_texts, "\"\"")), "no error");
  EXPECT_EQ(message_of(list_of(n_texts + 1, "\"\"")),
            "it is too large: the first 2516583 values and 0 keys take more than 192 MiB");
}

TEST(ReleaseJson, LeavesNull) {
  nlohmann::ordered_json value = parse_json(R"({"a":[1,[2,{"b":[]}]],"c":"x"})", "it is");
  release_json(value);
  EXPECT_TRUE(value.is_null());
}

TEST(ParseJson, AByteOrderMarkIsNoFault) {
  EXPECT_EQ(message_of("\xEF\xBB\xBF{\"a\":1}"), "no error");
}

TEST(JsonFault, AgreesWithTheParserOnRandomTexts) {
  const std::string pieces[] = {
      "{",  "}", "[",    "]",       ",",       ":",    "\"a\"", "\"",    "\\",  "\\u00e9", "\\ud83d\\ude00",
      "1",  "-", "0",    ".5",      "e9",      "true", "false", "null",  " ",   "\n",      "é",
      "\t", "'", "\xC0", "\\ud83d", "\"\\n\"", "\x01", "nul",   "1e999", "E+1", "-0"};
  std::mt19937 random(3);
  int n_right = 0;
  const int n_rounds = tandem::rounds(200'000);
  for (int round = 0; round < n_rounds; ++round) {
    std::string text;
    for (std::size_t n = 1 + random() % 9; n > 0; --n) text += pieces[random() % std::size(pieces)];
    const bool is_right = nlohmann::ordered_json::accept(text);
    n_right += is_right ? 1 : 0;
    const auto fault = find_json_fault(text, 512);
    ASSERT_EQ(!fault.has_value(), is_right) << text << " " << (fault ? fault->what : "");
    if (fault) {
      ASSERT_LE(fault->offset, text.size());
    }
  }
  EXPECT_GT(n_right, n_rounds / 200);
}

TEST(JsonFault, RandomDamageToALongTextIsFoundToo) {
  const std::string whole =
      R"({"a":[1,-2.5e3,{"b":"x\u00e9\n","c":[true,false,null,[],{}]}],"é":{"d":"\ud83d\ude00"}} )";
  ASSERT_FALSE(find_json_fault(whole, 512).has_value());
  std::mt19937 random(4);
  const int n_rounds = tandem::rounds(50'000);
  for (int round = 0; round < n_rounds; ++round) {
    std::string text = whole;
    for (int n = 0; n < 2; ++n) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text.erase(at, 1 + random() % 3);
      } else {
        text[at] = static_cast<char>(random() % 256);
      }
    }
    if (text.find('\0') != std::string::npos) {  // the library ends there
      ASSERT_NE(message_of(text), "no error");
      continue;
    }
    ASSERT_EQ(!find_json_fault(text, 512).has_value(), nlohmann::ordered_json::accept(text)) << text;
  }
}

}  // namespace
}  // namespace common
