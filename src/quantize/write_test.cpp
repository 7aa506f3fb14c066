#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "ggml/error.h"
#include "ggml/quant.h"
#include "llama/quantize.h"
#include "quantize/quantize_test_support.h"
#include "test_support.h"

namespace llama {
namespace {

using ggml::DType;
using ggml::gguf::File;
using ggml::gguf::TensorInfo;

/// All weights of a tensor, decoded.
std::vector<float> weights_of(const File& file, const std::string& name) {
  const TensorInfo& tensor = *file.find(name);
  std::vector<std::byte> bytes(tensor.bytes);
  ggml::gguf::Reader(file.shards()[tensor.shard].path, ggml::gguf::ReadMode::buffered).read(tensor.offset, bytes);
  const std::int64_t k = tensor.shape[0];
  std::vector<float> out(static_cast<std::size_t>(tensor.shape.elements()));
  for (std::int64_t row = 0; row < tensor.shape.rows(); ++row)
    ggml::dequantise_row_of(tensor.type, bytes.data(), row, k, out.data() + row * k);
  return out;
}

double rmse(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i] - b[i]), 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class Writing : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  void write(const std::string& source, const std::string& output, const QuantizeParams& params, int threads = 2) {
    const File file = File::open(source);
    write_quantized(
        file, plan_quantization(file, params), output, threads, [this](const QuantizeProgress& at) { last_ = at; },
        stop_);
  }
  [[nodiscard]] std::size_t files() const {
    const std::filesystem::directory_iterator entries(folder_.path());
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
  }
  std::string error_of(const std::string& source, const QuantizeParams& params) {
    try {
      write(source, path("out.gguf"), params);
    } catch (const ggml::Error& error) {
      return error.message();
    }
    return "no error";
  }

  tandem::TempDir folder_;
  std::atomic<bool> stop_{false};
  QuantizeProgress last_;
};

TEST_F(Writing, WeightsAreThoseOfTheSourceWithinTheTypesError) {
  testing::write_model(path("m.gguf"), 2, true);
  QuantizeParams params;
  struct Case {
    const char* type;
    double most;  // error of values spread evenly over -0.5 .. 0.5
  };
  for (const Case& c : {Case{"f16", 1e-4}, Case{"q8_0", 2e-3}, Case{"q4_k_m", 0.03}, Case{"q4_0", 0.03},
                        Case{"iq4_nl", 0.035}, Case{"q4_k_r4", 0.03}}) {
    params.file_type = find_file_type(c.type);
    write(path("m.gguf"), path("out.gguf"), params);
    const File before = File::open(path("m.gguf"));
    const File after = File::open(path("out.gguf"));
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const TensorInfo& tensor : before.tensors()) {
      const double error = rmse(weights_of(before, tensor.name), weights_of(after, tensor.name));
      EXPECT_LE(error, after.find(tensor.name)->type == DType::f32 ? 0.0 : c.most) << c.type << " " << tensor.name;
    }
  }
  EXPECT_EQ(files(), 2U);
}

TEST_F(Writing, TheFileDoesNotDependOnTheNumberOfThreads) {
  testing::write_model(path("m.gguf"), 1, true);
  QuantizeParams params;
  params.file_type = find_file_type("q4_k_m");
  write(path("m.gguf"), path("one.gguf"), params, 1);
  write(path("m.gguf"), path("three.gguf"), params, 3);
  EXPECT_EQ(tandem::load_text(path("one.gguf")), tandem::load_text(path("three.gguf")));
}

TEST_F(Writing, EachExpertIsQuantisedWithItsOwnImportance) {
  testing::write_model(path("m.gguf"), 1, true);
  ImportanceMatrix matrix;
  const std::string name = "blk.0.ffn_down_exps.weight";
  ImportanceMatrix::Entry& entry = matrix.entries[name];
  entry = {512, std::vector<float>(1024, 1e-6F), {1, 1}};
  for (std::size_t column = 0; column < 512; column += 2) {
    entry.square_sums[column] = 1;            // expert 0: even columns
    entry.square_sums[512 + column + 1] = 1;  // expert 1: odd columns
  }
  QuantizeParams params;
  params.file_type = find_file_type("q4_0");
  params.pure = true;
  params.importance = &matrix;
  write(path("m.gguf"), path("out.gguf"), params);
  const std::vector<float> before = weights_of(File::open(path("m.gguf")), name);
  const std::vector<float> after = weights_of(File::open(path("out.gguf")), name);
  double error[2][2] = {};
  for (std::size_t i = 0; i < before.size(); ++i)
    error[i / (before.size() / 2)][i % 2] += std::pow(static_cast<double>(before[i] - after[i]), 2);
  EXPECT_LT(error[0][0], 0.9 * error[0][1]);
  EXPECT_LT(error[1][1], 0.9 * error[1][0]);
}

TEST_F(Writing, ACopyHasTheSameWeightsAndPartsBecomeOneFile) {
  const std::string source = "tests/data/models/split3-00001-of-00003.gguf";
  write(source, path("out.gguf"), {});
  const File before = File::open(source);
  const File after = File::open(path("out.gguf"));
  EXPECT_EQ(after.shards().size(), 1U);
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const TensorInfo& tensor : before.tensors()) {
    EXPECT_EQ(after.find(tensor.name)->type, tensor.type);
    EXPECT_EQ(rmse(weights_of(before, tensor.name), weights_of(after, tensor.name)), 0.0);
  }
  QuantizeParams keep;
  keep.keep_split = true;
  write(source, path("part"), keep);
  EXPECT_EQ(File::open(path("part-00001-of-00003.gguf")).shards().size(), 3U);
}

TEST_F(Writing, AStopLeavesNothing) {
  testing::write_model(path("m.gguf"), 2, false);
  stop_ = true;
  QuantizeParams params;
  params.file_type = find_file_type("q8_0");
  EXPECT_NE(error_of(path("m.gguf"), params).find("stopped"), std::string::npos);
  EXPECT_EQ(files(), 1U);
}

TEST_F(Writing, BadWeightsAreNamedWithTheirRow) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F}) {
    ggml::gguf::Writer writer(path("m.gguf"));
    writer.metadata.set_string("general.architecture", "llama");
    writer.add_tensor("blk.0.attn_q.weight", DType::f32, ggml::Shape(256, 8));
    std::vector<float> values(256 * 8, 0.5F);
    values[256 * 5 + 7] = bad;
    writer.begin_data();
    writer.write(std::as_bytes(std::span(values)));
    writer.finish();
    QuantizeParams params;
    params.file_type = find_file_type("q4_k");
    const std::string error = error_of(path("m.gguf"), params);
    EXPECT_NE(error.find("blk.0.attn_q.weight"), std::string::npos) << error;
    EXPECT_NE(error.find("row 5"), std::string::npos) << error;
    EXPECT_EQ(files(), 1U);
  }
}

TEST_F(Writing, TheInputIsNeverTheOutput) {
  testing::write_model(path("out.gguf"), 1, false);
  QuantizeParams params;
  params.file_type = find_file_type("q8_0");
  EXPECT_NE(error_of(path("out.gguf"), params).find("same file"), std::string::npos);
  EXPECT_EQ(File::open(path("out.gguf")).find("output.weight")->type, DType::f32);
}

TEST_F(Writing, ProgressEndsWithAllBytes) {
  testing::write_model(path("m.gguf"), 1, false);
  QuantizeParams params;
  params.file_type = find_file_type("q8_0");
  write(path("m.gguf"), path("out.gguf"), params);
  const File file = File::open(path("m.gguf"));
  EXPECT_EQ(last_.done_bytes, plan_quantization(file, params).bytes_after());
  EXPECT_EQ(last_.tensor, file.tensors().size() - 1);
}

}  // namespace
}  // namespace llama
