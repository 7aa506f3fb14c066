#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "raw_gguf.h"

namespace ggml::gguf {
namespace {

TEST(GgufMetadata, KeepsTheOrderOfKeysWhenAValueIsReplaced) {
  Metadata metadata;
  metadata.set_u32("a", 1);
  metadata.set_string("b", "x");
  metadata.set_f32("a", 2.5F);
  ASSERT_EQ(metadata.entries().size(), 2U);
  EXPECT_EQ(metadata.entries()[0].first, "a");
  EXPECT_EQ(metadata.get_f32("a"), 2.5F);
  EXPECT_EQ(metadata.get_string("b"), "x");
}

TEST(GgufMetadata, FindsTheRightValuesAfterErasing) {
  Metadata metadata;
  for (const char* key : {"a", "b", "c", "d"}) metadata.set_string(key, key);
  EXPECT_TRUE(metadata.erase("b"));
  EXPECT_FALSE(metadata.erase("b"));
  EXPECT_EQ(metadata.find("b"), nullptr);
  for (const char* key : {"a", "c", "d"}) EXPECT_EQ(metadata.get_string(key), key);
}

TEST(GgufMetadata, InsertRefusesAnExistingKey) {
  Metadata metadata;
  EXPECT_TRUE(metadata.insert("a", {ValueType::u8, std::uint64_t{1}}));
  EXPECT_FALSE(metadata.insert("a", {ValueType::u8, std::uint64_t{2}}));
  EXPECT_EQ(metadata.get_u32("a"), 1U);
}

TEST(GgufMetadata, AcceptsIntegersOfAnyWidthWhereTheyFit) {
  Metadata metadata;
  metadata.set("u64", {ValueType::u64, std::uint64_t{7}});
  metadata.set("i8", {ValueType::i8, std::int64_t{-7}});
  metadata.set_bool("flag", true);
  metadata.set("huge", {ValueType::u64, std::numeric_limits<std::uint64_t>::max()});
  EXPECT_EQ(metadata.get_u32("u64"), 7U);
  EXPECT_EQ(metadata.get_integer("i8"), -7);
  EXPECT_EQ(metadata.get_u32("flag"), 1U);
  EXPECT_EQ(metadata.get_u32("absent"), std::nullopt);
  EXPECT_NE(error_of([&] { (void)metadata.get_u32("i8"); }).message().find("'i8' is -7"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)metadata.get_integer("huge"); }).message().find("18446744073709551615"),
            std::string::npos);
}

TEST(GgufMetadata, NamesKeyStoredTypeAndWantedTypeOfAMismatch) {
  Metadata metadata;
  metadata.set_strings("tokens", {"a", "b"});
  metadata.set_string("name", "x");
  metadata.set_u32("n", 3);
  const Error error = error_of([&] { (void)metadata.get_u32("tokens"); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_file);
  EXPECT_EQ(error.message(), "metadata key 'tokens' is stored as array of 2 string, an integer was expected");
  EXPECT_THROW((void)metadata.get_f32("n"), Error);
  EXPECT_THROW((void)metadata.get_bool("n"), Error);
  EXPECT_THROW((void)metadata.get_string("n"), Error);
  EXPECT_THROW((void)metadata.get_array("name"), Error);
  EXPECT_EQ(metadata.get_array("absent"), nullptr);
}

TEST(GgufMetadata, ReadsArrayElementsInTheirStoredType) {
  Metadata metadata;
  metadata.set_i32s("i", std::array<std::int32_t, 2>{-5, 6});
  metadata.set_f32s("f", std::array<float, 3>{0.5F, std::numeric_limits<float>::infinity(), -1e30F});
  const Array* integers = metadata.get_array("i");
  ASSERT_NE(integers, nullptr);
  EXPECT_EQ(integers->size(), 2U);
  EXPECT_EQ(integers->integer(0), -5);
  EXPECT_EQ(integers->number(1), 6.0);
  const Array* floats = metadata.get_array("f");
  EXPECT_EQ(floats->number(0), 0.5);
  EXPECT_EQ(floats->integer(1), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(floats->integer(2), std::numeric_limits<std::int64_t>::min());
}

}  // namespace
}  // namespace ggml::gguf
