#include "logits_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "ggml/error.h"
#include "test_support.h"

namespace perplexity {
namespace {

LogitsHeader small_header(int n_vocab) {
  return {8, n_vocab, 2, {1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2}};
}

TEST(LogitsFile, RecordsGiveBackLogProbabilitiesWithinACode) {
  const LogitsHeader header = small_header(7);
  EXPECT_EQ(header.record_words(), 12U);
  EXPECT_EQ(header.rows_per_chunk(), 3);
  const std::vector<float> logits = {1, 2, 3, -1, 0.5F, -40, 2.5F};
  std::vector<std::uint16_t> record(header.record_words(), 0xffff);
  const double log_p = pack_record(logits, 2, record);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(log_p, 3 - std::log(sum), 1e-6);
  EXPECT_EQ(record.back(), 0) << "padding";
  std::vector<float> out(7);
  unpack_record(record, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double exact = std::max(static_cast<double>(logits[i]), 3.0 - 16) - std::log(sum);
    EXPECT_NEAR(static_cast<double>(out[i]), exact, 16.0 / 65535) << i;
  }
}

TEST(LogitsFile, EqualLogitsHaveNoScale) {
  std::vector<std::uint16_t> record(small_header(4).record_words());
  const std::vector<float> logits(4, 2.0F);
  EXPECT_NEAR(pack_record(logits, 1, record), std::log(0.25), 1e-6);
  std::vector<float> out(4);
  unpack_record(record, out);
  for (const float log_p : out) EXPECT_NEAR(log_p, std::log(0.25), 1e-6);
}

TEST(LogitsFile, WhatIsWrittenIsRead) {
  const tandem::TempDir folder;
  const std::string path = (folder.path() / "f").string();
  const LogitsHeader header = small_header(7);
  std::vector<std::uint16_t> records(header.record_words() * 6);
  for (std::size_t i = 0; i < records.size(); ++i) records[i] = static_cast<std::uint16_t>(i * 77);
  {
    LogitsWriter writer(path, header);
    writer.write(records);
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.finish();
  }
  EXPECT_EQ(std::filesystem::file_size(path), 8 + 12 + 16 * 4 + records.size() * 2);
  LogitsReader reader(path);
  EXPECT_EQ(reader.header().n_ctx, 8);
  EXPECT_EQ(reader.header().n_chunk, 2);
  EXPECT_EQ(reader.header().tokens, header.tokens);
  std::vector<std::uint16_t> read(records.size());
  reader.read(read);
  EXPECT_EQ(read, records);
  EXPECT_THROW(reader.read(read), ggml::Error);
}

TEST(LogitsFile, AWriterThatDiesLeavesNothing) {
  const tandem::TempDir folder;
  { const LogitsWriter writer((folder.path() / "f").string(), small_header(7)); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(LogitsFile, HostileFilesAreRefused) {
  const tandem::TempDir folder;
  const std::string path = (folder.path() / "f").string();
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    try {
      const LogitsReader reader(path);
    } catch (const ggml::Error& error) {
      return error.code() == ggml::ErrorCode::invalid_file;
    }
    return false;
  };
  const auto number = [](std::int32_t n) { return std::string(reinterpret_cast<const char*>(&n), sizeof(n)); };
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("_logitz_"));
  EXPECT_TRUE(refused("_logits_"));
  EXPECT_TRUE(refused("_logits_" + number(512) + number(100) + number(2000000000)));
  EXPECT_TRUE(refused("_logits_" + number(-8) + number(100) + number(-2)));
  EXPECT_TRUE(refused("_logits_" + number(4) + number(3) + number(1) + number(0) + number(1) + number(2) + number(3)));
  EXPECT_TRUE(refused("_logits_" + number(4) + number(2000000000) + number(1) + std::string(16, '\0')))
      << "not one record of that vocabulary is in the file";
  EXPECT_THROW(LogitsReader((folder.path() / "none").string()), ggml::Error);
}

TEST(LogitsFile, RecordsOfNoNumbersAreRefusedByTheirPlace) {
  const tandem::TempDir folder;
  const std::string path = (folder.path() / "f").string();
  const LogitsHeader header = small_header(7);
  std::vector<std::uint16_t> records(header.record_words() * 2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(records.data() + header.record_words() + 2, &nan, sizeof(nan));
  {
    LogitsWriter writer(path, header);
    writer.write(records);
    writer.finish();
  }
  LogitsReader reader(path);
  try {
    reader.read(records);
    FAIL() << "read a NaN";
  } catch (const ggml::Error& error) {
    EXPECT_NE(error.message().find("record 1 has the scale 0"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace perplexity
