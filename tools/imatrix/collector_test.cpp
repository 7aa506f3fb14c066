#include "collector.h"

#include <gtest/gtest.h>

#include <limits>

#include "common/score/setup.h"
#include "common/score/windows.h"
#include "ggml/cpu.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "statistics.h"

namespace imatrix {
namespace {

using llama::ImportanceMatrix;

ggml::Weight weight(const std::string& name, std::int64_t k, std::int64_t experts) {
  ggml::Weight out;
  out.name = name;
  out.shape = ggml::Shape(k, 4, experts);
  return out;
}

TEST(Collector, SumsSquaresPerColumnAndExpert) {
  Collector collector({});
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  collector.on_slot(weight("blk.0.attn_q.weight", 2, 1), rows, {});
  collector.on_slot(weight("blk.0.attn_q.weight", 2, 1), {{1, 1}}, {});
  const std::vector<std::int32_t> experts = {2, 0, 2};
  collector.on_slot(weight("blk.0.ffn_up_exps.weight", 2, 3), rows, experts);
  collector.on_slot(weight("output.weight", 2, 1), rows, {});
  ImportanceMatrix matrix;
  collector.move_to(matrix);
  ASSERT_EQ(matrix.entries.size(), 2U);
  const ImportanceMatrix::Entry& dense = matrix.entries.at("blk.0.attn_q.weight");
  EXPECT_EQ(dense.square_sums, (std::vector<float>{36, 57}));
  EXPECT_EQ(dense.counts, (std::vector<float>{4}));
  const ImportanceMatrix::Entry& stack = matrix.entries.at("blk.0.ffn_up_exps.weight");
  EXPECT_EQ(stack.square_sums, (std::vector<float>{9, 16, 0, 0, 26, 40}));
  EXPECT_EQ(stack.counts, (std::vector<float>{1, 0, 2}));
  collector.move_to(matrix);
  EXPECT_EQ(matrix.entries.at("blk.0.attn_q.weight").counts[0], 4) << "moved twice";
}

TEST(Collector, TakesTheHeadOnlyWhenAsked) {
  Collector collector({.output_too = true});
  collector.on_slot(weight("output.weight", 2, 1), {{1, 1}}, {});
  ImportanceMatrix matrix;
  collector.move_to(matrix);
  EXPECT_EQ(matrix.entries.count("output.weight"), 1U);
}

TEST(Collector, NamesTheWeightWhoseInputIsBroken) {
  Collector collector({});
  try {
    collector.on_slot(weight("blk.7.x.weight", 2, 1), {{1, std::numeric_limits<float>::quiet_NaN()}}, {});
    FAIL();
  } catch (const ggml::Error& error) {
    EXPECT_NE(error.message().find("blk.7.x.weight"), std::string::npos);
  }
}

/// Every projection of the layers sees every token, also in the last layer.
TEST(Collector, SeesAllTokensInAllLayersOfRealGraphs) {
  for (const char* path : {"tests/data/models/llama.gguf", "tests/data/models/mixtral.gguf"}) {
    ggml::CpuOptions options;
    options.n_threads = options.n_threads_batch = 1;
    const auto device = ggml::make_cpu_device(options);
    llama::ModelParams params;
    params.path = path;
    const auto model = llama::Model::load(params, *device, [](std::uint64_t, std::uint64_t) { return true; });
    Collector collector({.output_too = true});
    const auto context = common::make_score_context({}, *model, *device, {32, 2}, &collector);
    std::vector<common::Window> windows(2);
    for (common::Window& window : windows)
      for (int i = 0; i < 32; ++i) window.tokens.push_back(3 + i);
    common::run_windows(*context, windows, [](const common::WindowRows&) {});
    ImportanceMatrix matrix;
    collector.move_to(matrix);
    std::size_t projections = 0;
    const ggml::gguf::File file = ggml::gguf::File::open(path);
    for (const ggml::gguf::TensorInfo& tensor : file.tensors()) {
      if (tensor.shape.dims() < 2 || tensor.name == "token_embd.weight") continue;
      ++projections;
      const auto found = matrix.entries.find(tensor.name);
      ASSERT_NE(found, matrix.entries.end()) << path << " " << tensor.name;
      float rows = 0;
      for (const float count : found->second.counts) rows += count;
      const float used = tensor.shape.dims() == 3 ? static_cast<float>(model->info().n_expert_used) : 1;
      EXPECT_EQ(rows, 64 * used) << path << " " << tensor.name;
      EXPECT_EQ(found->second.columns, tensor.shape[0]);
    }
    EXPECT_GT(projections, 10U);
  }
}

TEST(Statistics, NameEveryWeightAndCompareLayers) {
  ImportanceMatrix matrix;
  matrix.entries["blk.0.a.weight"] = {2, {1, 2}, {1}};
  matrix.entries["blk.1.a.weight"] = {2, {2, 4}, {1}};
  const std::string table = statistics_table(matrix);
  EXPECT_NE(table.find("blk.0.a.weight"), std::string::npos);
  EXPECT_NE(table.find("1.0000\n"), std::string::npos) << table;
}

}  // namespace
}  // namespace imatrix
