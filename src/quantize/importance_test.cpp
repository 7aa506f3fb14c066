#include "llama/importance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "test_support.h"

namespace llama {
namespace {

class Importance : public ::testing::Test {
 protected:
  Importance() {
    matrix_.entries["blk.0.attn_q.weight"] = {3, {2, 4, 6}, {2}};
    matrix_.entries["blk.0.ffn_up_exps.weight"] = {2, {1, 2, 0, 0, 9, 12}, {1, 0, 3}};
    matrix_.datasets = {"text.txt"};
    matrix_.chunks = 5;
    matrix_.chunk_size = 512;
  }
  [[nodiscard]] std::string path(const std::string& name = "m") const { return (folder_.path() / name).string(); }
  static std::string error_of(const std::string& path) {
    try {
      (void)ImportanceMatrix::load(path);
    } catch (const ggml::Error& error) {
      return error.message();
    }
    return "no error";
  }

  ImportanceMatrix matrix_;
  tandem::TempDir folder_;
};

TEST_F(Importance, GgufFilesGiveBackAllSumsAndCounts) {
  matrix_.save_gguf(path());
  const ImportanceMatrix read = ImportanceMatrix::load(path());
  ASSERT_EQ(read.entries.size(), 2U);
  for (const auto& [name, entry] : matrix_.entries) {
    EXPECT_EQ(read.entries.at(name).columns, entry.columns);
    EXPECT_EQ(read.entries.at(name).square_sums, entry.square_sums);
    EXPECT_EQ(read.entries.at(name).counts, entry.counts);
  }
  EXPECT_EQ(read.datasets, matrix_.datasets);
  EXPECT_EQ(read.chunks, 5);
  EXPECT_EQ(read.chunk_size, 512);
}

TEST_F(Importance, LegacyFilesHoldMeansOfMoreRowsThanTheirNumbersDo) {
  matrix_.entries["blk.0.attn_q.weight"] = {3, {3e30F, 6e30F, 0}, {3e18F}};
  matrix_.entries["output.weight"] = {1, {3e38F}, {1}};
  matrix_.save_legacy(path());
  const ImportanceMatrix read = ImportanceMatrix::load(path());
  const std::vector<float> means = ImportanceMatrix::means(read.entries.at("blk.0.attn_q.weight"));
  EXPECT_FLOAT_EQ(means[0], 1e12F);
  EXPECT_FLOAT_EQ(means[1], 2e12F);
  EXPECT_EQ(means[2], 0);
  EXPECT_FLOAT_EQ(ImportanceMatrix::means(read.entries.at("output.weight"))[0], 3e38F);
}

TEST_F(Importance, LegacyFilesHoldTheGreatestSums) {
  // For 25 and 31 the rounded mean times the count is beyond all numbers.
  for (int count = 1; count < 1000; ++count) {
    const auto calls = static_cast<float>(count);
    matrix_.entries = {{"output.weight", {1, {std::numeric_limits<float>::max()}, {calls}}}};
    matrix_.save_legacy(path());
    const ImportanceMatrix read = ImportanceMatrix::load(path());
    EXPECT_FLOAT_EQ(ImportanceMatrix::means(read.entries.at("output.weight"))[0],
                    std::numeric_limits<float>::max() / calls);
  }
}

TEST_F(Importance, NamesOfTextsNeverMakeALegacyFileUnreadable) {
  for (const std::string& text : {std::string(), std::string("a\0b", 3), std::string(10000, 'x')}) {
    matrix_.datasets = {text};
    matrix_.save_legacy(path());
    EXPECT_EQ(ImportanceMatrix::load(path()).datasets.front(), text.empty() ? "unknown" : text.substr(0, 4096));
  }
}

TEST_F(Importance, SumsOfNoWeightAreRefused) {
  matrix_.entries[""] = {1, {1}, {1}};
  matrix_.save_gguf(path());
  EXPECT_NE(error_of(path()).find("'.in_sum2' names no weight"), std::string::npos);
}

TEST_F(Importance, CountsThatMakeMeansInfiniteAreRefused) {
  matrix_.entries["output.weight"] = {1, {3e38F}, {1e-3F}};
  matrix_.save_gguf(path());
  EXPECT_NE(error_of(path()).find("'output.weight' has a sum too large for its count"), std::string::npos);
}

TEST_F(Importance, LegacyFilesGiveBackTheMeans) {
  matrix_.save_legacy(path());
  const ImportanceMatrix read = ImportanceMatrix::load(path());
  EXPECT_EQ(read.datasets, matrix_.datasets);
  EXPECT_EQ(read.chunks, 5);
  const std::vector<float> dense = ImportanceMatrix::means(read.entries.at("blk.0.attn_q.weight"));
  EXPECT_EQ(dense, (std::vector<float>{1, 2, 3}));
  // Expert 1 was never reached: all its columns count alike.
  const std::vector<float> experts = ImportanceMatrix::means(read.entries.at("blk.0.ffn_up_exps.weight"));
  EXPECT_EQ(experts, (std::vector<float>{1, 2, 1, 1, 3, 4}));
  EXPECT_EQ(experts, ImportanceMatrix::means(matrix_.entries.at("blk.0.ffn_up_exps.weight")));
}

TEST_F(Importance, MergingAddsSumsAndRefusesOtherShapes) {
  ImportanceMatrix other = matrix_;
  other.entries["blk.1.attn_q.weight"] = {3, {1, 1, 1}, {1}};
  matrix_.merge(other);
  EXPECT_EQ(matrix_.entries.at("blk.0.attn_q.weight").square_sums[2], 12);
  EXPECT_EQ(matrix_.entries.at("blk.0.attn_q.weight").counts[0], 4);
  EXPECT_EQ(matrix_.entries.size(), 3U);
  EXPECT_EQ(matrix_.chunks, 10);
  EXPECT_EQ(matrix_.datasets.size(), 1U);
  other.entries["blk.0.attn_q.weight"] = {4, {1, 1, 1, 1}, {1}};
  EXPECT_THROW(matrix_.merge(other), ggml::Error);
}

TEST_F(Importance, LegacyFilesMergeWithGgufFilesExpertByExpert) {
  matrix_.save_legacy(path());
  ImportanceMatrix legacy = ImportanceMatrix::load(path());
  legacy.merge(matrix_);
  const ImportanceMatrix::Entry& entry = legacy.entries.at("blk.0.ffn_up_exps.weight");
  EXPECT_EQ(entry.columns, 2);
  ASSERT_EQ(entry.matrices(), 3);
  // The file has one number of calls, that of the expert with the most: 3.
  EXPECT_EQ(entry.counts, (std::vector<float>{4, 3, 6}));
  EXPECT_EQ(entry.square_sums[5], 24);
  matrix_.merge(ImportanceMatrix::load(path()));
  EXPECT_EQ(matrix_.entries.at("blk.0.ffn_up_exps.weight").counts, entry.counts);
}

TEST_F(Importance, WeightsThatNoRowReachedAreNotWritten) {
  matrix_.entries["blk.2.attn_q.weight"] = {3, {0, 0, 0}, {0}};
  matrix_.save_gguf(path("a"));
  matrix_.save_legacy(path("b"));
  EXPECT_EQ(ImportanceMatrix::load(path("a")).entries.size(), 2U);
  EXPECT_EQ(ImportanceMatrix::load(path("b")).entries.size(), 2U);
}

TEST_F(Importance, BadFilesGiveOneClearError) {
  EXPECT_NE(error_of(path("none")).find("none"), std::string::npos);
  std::ofstream(path("short")) << "x";
  EXPECT_NE(error_of(path("short")).find("shorter"), std::string::npos);
  std::ofstream(path("text")) << "this is no importance matrix at all";
  EXPECT_NE(error_of(path("text")).find("no importance matrix"), std::string::npos);

  matrix_.entries["blk.0.attn_q.weight"].square_sums[1] = std::numeric_limits<float>::quiet_NaN();
  matrix_.save_gguf(path("nan.gguf"));
  EXPECT_NE(error_of(path("nan.gguf")).find("finite"), std::string::npos);
  matrix_.save_legacy(path("nan.dat"));
  EXPECT_NE(error_of(path("nan.dat")).find("finite"), std::string::npos);

  EXPECT_NE(error_of("tests/data/models/llama.gguf").find("imatrix"), std::string::npos);
}

TEST_F(Importance, EveryTruncationOfALegacyFileIsAnErrorOrAWholeMatrix) {
  matrix_.save_legacy(path());
  const std::string bytes = tandem::load_text(path());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    std::ofstream(path("cut"), std::ios::binary) << bytes.substr(0, n);
    const std::string error = error_of(path("cut"));
    if (error == "no error") {
      EXPECT_EQ(ImportanceMatrix::load(path("cut")).entries.size(), 2U) << n;
    }
  }
}

}  // namespace
}  // namespace llama
