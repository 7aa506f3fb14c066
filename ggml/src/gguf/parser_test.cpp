#include <gtest/gtest.h>

#include <ctime>
#include <set>
#include <sstream>

#include "raw_gguf.h"
#include "test_support.h"

namespace ggml::gguf {
namespace {

struct Expectation {
  std::string file;
  bool valid = false;
  std::string byte;
  std::string cause;
};

std::vector<Expectation> expectations() {
  std::vector<Expectation> rows;
  std::istringstream text(tandem::load_text(tandem::data_dir() / "gguf/bad/expected.tsv"));
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    Expectation row;
    std::string verdict;
    std::getline(fields, row.file, '\t');
    std::getline(fields, verdict, '\t');
    std::getline(fields, row.byte, '\t');
    std::getline(fields, row.cause, '\t');
    row.valid = verdict == "ok";
    rows.push_back(std::move(row));
  }
  return rows;
}

void check_folder(const std::filesystem::path& folder) {
  int refused = 0;
  int loaded = 0;
  for (const Expectation& row : expectations()) {
    SCOPED_TRACE(row.file);
    const std::string path = (folder / row.file).string();
    if (row.valid) {
      EXPECT_NO_THROW((void)File::open(path));
      ++loaded;
      continue;
    }
    const Error from_file = error_of([&] { (void)File::open(path); });
    EXPECT_TRUE(from_file.code() == ErrorCode::invalid_file || from_file.code() == ErrorCode::unsupported);
    EXPECT_EQ(from_file.message().find(path + ": byte " + row.byte + ": "), 0U) << from_file.message();
    EXPECT_NE(from_file.message().find(row.cause), std::string::npos) << from_file.message();
    const std::vector<std::byte> bytes = file_content(path);
    EXPECT_EQ(error_of([&] { (void)File::parse(bytes, path); }).message(), from_file.message());
    ++refused;
  }
  EXPECT_EQ(refused, 52);
  EXPECT_EQ(loaded, 6);
}

TEST(GgufParser, RefusesExactlyTheMalformedFilesAndNamesFileByteAndCause) {
  check_folder(tandem::data_dir() / "gguf/bad");
}

TEST(GgufParser, AgreesOnTheSharedCopyOfTheMalformedFiles) {
  const auto shared = tandem::shared_dir();
  if (!shared) GTEST_SKIP() << "no shared folder";
  check_folder(*shared / "data/gguf/bad");
}

TEST(GgufParser, HasAnExpectationForEachFileOfTheFolder) {
  std::set<std::string> expected;
  for (const Expectation& row : expectations()) expected.insert(row.file);
  std::set<std::string> present;
  for (const auto& entry : std::filesystem::directory_iterator(tandem::data_dir() / "gguf/bad")) {
    if (entry.path().extension() == ".gguf") present.insert(entry.path().filename().string());
  }
  EXPECT_EQ(expected, present);
}

TEST(GgufParser, ReadsEveryPrefixOfAValidFileWithoutCrashing) {
  const std::vector<std::byte> bytes = file_content(tandem::data_dir() / "gguf/bad/ok_all_value_types.gguf");
  ASSERT_GT(bytes.size(), 700U);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const Error error = error_of([&] { (void)File::parse(std::span(bytes).first(n), "cut.gguf"); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_file) << n << ": " << error.message();
  }
}

TEST(GgufParser, PlacesTensorsAtAbsoluteOffsets) {
  RawGguf raw;
  raw.header(2, 1).key("general.alignment", ValueType::u32).number32(64);
  raw.tensor("a", {32, 3}, 8, 0).tensor("b", {}, 0, 128).pad(64);
  const std::size_t data_start = raw.bytes().size();
  raw.zeros(128 + 4);
  const File file = raw.parse();
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.shards()[0].data_start, data_start);
  EXPECT_EQ(file.shards()[0].alignment, 64U);
  EXPECT_EQ(file.tensors()[0].bytes, 3U * 34);
  EXPECT_EQ(file.tensors()[0].offset, data_start);
  const TensorInfo* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->offset, data_start + 128);
  EXPECT_EQ(b->n_dims, 0);
  EXPECT_EQ(b->shape, Shape(1));
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(GgufParser, NamesTypesThatItKnowsButCannotRead) {
  const auto refusal = [](std::uint32_t type) {
    RawGguf raw;
    raw.header(1, 0).tensor("t", {256}, type, 0).pad().zeros(4096);
    return error_of([&] { (void)raw.parse(); });
  };
  EXPECT_EQ(refusal(400).code(), ErrorCode::unsupported);
  EXPECT_NE(refusal(9).message().find("a form for activations"), std::string::npos);
  EXPECT_NE(refusal(31).message().find("was removed"), std::string::npos);
  EXPECT_NE(refusal(36).message().find("two types use this number"), std::string::npos);
}

TEST(GgufParser, EscapesNamesFromTheFileInMessages) {
  RawGguf raw;
  raw.header(0, 1).key("\x1b[2Jkey\n", static_cast<ValueType>(99)).zeros(32);
  const std::string message = error_of([&] { (void)raw.parse(); }).message();
  EXPECT_NE(message.find("'\\x1b[2Jkey\\x0a'"), std::string::npos) << message;
}

TEST(GgufParser, MissingFilesAndFoldersAreErrorsOfTheirOwn) {
  EXPECT_EQ(error_of([] { (void)File::open("/nonexistent/model.gguf"); }).code(), ErrorCode::not_found);
  EXPECT_EQ(error_of([] { (void)File::open("/tmp"); }).code(), ErrorCode::io);
}

/// Processor time, so that a busy machine does not count.
double parse_ms(const RawGguf& raw) {
  const std::clock_t start = std::clock();
  (void)raw.parse();
  return 1000.0 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(GgufParser, ReadsAQuarterMillionTokensInATenthOfASecond) {
  RawGguf raw;
  raw.header(0, 1).key("tokens", ValueType::array).number32(8).number64(262144);
  for (int i = 0; i < 262144; ++i) raw.string("token number " + std::to_string(i));
  const double ms = parse_ms(raw);
  RecordProperty("milliseconds", static_cast<int>(ms));
  EXPECT_LT(ms, 400.0);  // 15 ms on a quiet machine; sanitizers and neighbours take their share
}

TEST(GgufParser, ReadsAMillionKeysInLinearTime) {
  RawGguf raw;
  constexpr int kKeys = 1000000;
  raw.header(0, kKeys);
  for (int i = 0; i < kKeys; ++i) raw.key("key." + std::to_string(i), ValueType::u32).number32(1);
  const double ms = parse_ms(raw);
  RecordProperty("milliseconds", static_cast<int>(ms));
  EXPECT_LT(ms, 10000.0);  // half a second; a pairwise scan takes an hour
}

}  // namespace
}  // namespace ggml::gguf
