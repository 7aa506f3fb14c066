#include "api/fields.h"

#include <gtest/gtest.h>

#include <string>

namespace server {
namespace {

std::string message_of(const auto& action) {
  try {
    action();
  } catch (const ggml::Error& error) {
    EXPECT_EQ(error.code(), ggml::ErrorCode::invalid_argument);
    return error.message();
  }
  return "no error";
}

TEST(Fields, ReadTypedValuesAndKeepDefaults) {
  const Body body = parse_body(R"({"i": 5, "whole": 3.0, "b": true, "s": "x", "none": null})");
  const Fields fields(body);
  EXPECT_EQ(fields.integer("i", 0, 10), 5);
  EXPECT_EQ(fields.integer("whole", 0, 10), 3);
  EXPECT_EQ(fields.boolean("b"), true);
  EXPECT_EQ(fields.text("s"), "x");
  EXPECT_EQ(fields.integer("none", 0, 10), std::nullopt);
  int kept = 7;
  fields.read("absent", kept, 0, 10);
  EXPECT_EQ(kept, 7);
}

TEST(Fields, NameTheFieldTheRangeAndTheValue) {
  const Body body = parse_body(R"({"i": 99, "s": 5, "huge": 18446744073709551615})");
  const Fields fields(body);
  EXPECT_EQ(message_of([&] { (void)fields.integer("i", 0, 10); }),
            "Field 'i': expected an integer from 0 to 10, got 99");
  EXPECT_EQ(message_of([&] { (void)fields.text("s"); }), "Field 's': expected a string, got 5");
  EXPECT_NE(message_of([&] { (void)fields.integer("huge", 0, 10); }).find("'huge'"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)fields.boolean("i"); }).find("true or false"), std::string::npos);
}

TEST(ParseBody, SaysWhereTheSyntaxErrorIs) {
  EXPECT_NE(message_of([] { (void)parse_body("{\"a\": }"); }).find("byte 7 of 7"), std::string::npos);
}

TEST(ParseBody, ANumberBeyondDoubleIsTheClientsMistake) {
  EXPECT_NE(message_of([] { (void)parse_body("{\"a\": 1e400}"); }).find("too large"), std::string::npos);
}

TEST(ParseBody, ACutBodyIsCalledThat) {
  EXPECT_NE(message_of([] { (void)parse_body("{\"a\": 5"); }).find("ends too early, after 7 bytes"), std::string::npos);
}

TEST(ParseBody, RefusesDeepNestingBeforeItCostsStack) {
  EXPECT_NE(message_of([] { (void)parse_body(std::string(1000000, '[')); }).find("deeper than 512"), std::string::npos);
  const std::string in_string = "{\"a\": \"" + std::string(2000, '[') + "\\\"[\"}";
  EXPECT_EQ(parse_body(in_string).json()["a"].get<std::string>().size(), 2002u);
}

TEST(ParseBody, RefusesInvalidUtf8) {
  EXPECT_NE(message_of([] { (void)parse_body("{\"a\": \"\xff\"}"); }), "no error");
}

TEST(Dump, ReplacesInvalidUtf8) {
  EXPECT_EQ(dump(Json("a\xff")), "\"a\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace server
