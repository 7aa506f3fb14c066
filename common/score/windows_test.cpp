#include "common/score/windows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/score/setup.h"
#include "ggml/cpu.h"
#include "ggml/error.h"

namespace common {
namespace {

class Windows : public ::testing::Test {
 protected:
  Windows() {
    ggml::CpuOptions options;
    options.n_threads = options.n_threads_batch = 1;
    device_ = ggml::make_cpu_device(options);
    llama::ModelParams params;
    params.path = "tests/data/models/llama.gguf";
    model_ = llama::Model::load(params, *device_, [](std::uint64_t, std::uint64_t) { return true; });
  }
  /// Logits by position of a window that is run beside others, in steps of `n_batch` tokens.
  std::map<int, std::vector<float>> run(const std::vector<Window>& windows, std::size_t of, int n_batch) {
    Settings settings;
    settings.context.n_batch = n_batch;
    settings.context.n_ubatch = n_batch;
    const auto context =
        make_score_context(settings, *model_, *device_, {64, static_cast<int>(windows.size())}, nullptr);
    std::map<int, std::vector<float>> out;
    run_windows(*context, windows, [&](const WindowRows& rows) {
      if (rows.window != of) return;
      const std::size_t width = rows.logits.size() / static_cast<std::size_t>(rows.n);
      for (int i = 0; i < rows.n; ++i) {
        const auto row = rows.logits.subspan(static_cast<std::size_t>(i) * width, width);
        EXPECT_TRUE(out.try_emplace(rows.position + i, row.begin(), row.end()).second) << "a position came twice";
      }
    });
    return out;
  }
  static Window window(int n, int first) {
    Window out;
    for (int i = 0; i < n; ++i) out.tokens.push_back(3 + (i * 7 + n) % 90);
    out.first = first;
    return out;
  }

  std::unique_ptr<ggml::Device> device_;
  std::unique_ptr<llama::Model> model_;
};

TEST_F(Windows, GiveTheSameLogitsAloneAndBesideOthersWhateverTheBatch) {
  const Window one = window(33, 16);
  const auto alone = run({one}, 0, 64);
  ASSERT_EQ(alone.size(), 17U);
  EXPECT_EQ(alone.begin()->first, 16);
  for (const int batch : {5, 16, 64}) {
    const auto beside = run({window(20, 3), one, window(50, 50)}, 1, batch);
    ASSERT_EQ(beside.size(), alone.size());
    for (const auto& [position, logits] : alone)
      for (std::size_t i = 0; i < logits.size(); ++i)
        ASSERT_NEAR(beside.at(position)[i], logits[i], 2e-3 + 2e-3 * std::fabs(logits[i])) << batch << " " << position;
  }
}

TEST_F(Windows, WithoutWantedRowsGiveNone) {
  EXPECT_TRUE(run({window(20, 20)}, 0, 64).empty());
}

TEST(Chunks, AreCountedAndBounded) {
  EXPECT_EQ(chunk_count(1100, 512, -1), 2);
  EXPECT_EQ(chunk_count(5000, 512, 3), 3);
  EXPECT_EQ(chunk_count(1100, 512, 9), 2);
  EXPECT_THROW((void)chunk_count(1023, 512, -1), ggml::Error);
}

TEST(Chunks, AsManyRunTogetherAsTheBatchHolds) {
  Settings settings;
  EXPECT_EQ(score_shape(settings).n_ctx, 512);
  EXPECT_EQ(score_shape(settings).n_seq, 4);
  settings.context.n_ctx = 4096;
  EXPECT_EQ(score_shape(settings).n_seq, 1);
  settings.context.n_ctx = 2;
  EXPECT_THROW((void)score_shape(settings), ggml::Error);
}

}  // namespace
}  // namespace common
