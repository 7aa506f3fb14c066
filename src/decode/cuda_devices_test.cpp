#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ggml/cpu.h"
#include "ggml/cuda.h"
#include "models/golden.h"
#include "models/random_plan.h"

/// Whole models over the CPU and several devices of real memory: each card counts as two.
namespace llama::golden {
namespace {

class SeveralCards : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    constexpr int kPerCard = 2, kMostDevices = 4;
    golden_ = load(GetParam());
    if (golden_ == nullptr) GTEST_SKIP() << "no golden file";
    ggml::CudaDevices cuda = ggml::find_cuda_devices(kPerCard);
    if (cuda.devices.empty()) GTEST_SKIP() << "no such device here";
    devices_.push_back(ggml::make_cpu_device({}));
    for (auto& card : cuda.devices) {
      if (devices_.size() <= kMostDevices) devices_.push_back(std::move(card));
    }
    for (const auto& device : devices_) pointers_.push_back(device.get());
  }

  std::unique_ptr<Golden> golden_;
  std::vector<std::unique_ptr<ggml::Device>> devices_;
  std::vector<ggml::Device*> pointers_;
};

/// Any plan gives the golden logits, and the same bytes when the step is taken again.
TEST_P(SeveralCards, GiveTheGoldenLogitsForAnyPlan) {
  constexpr int kRounds = 6;
  std::seed_seq seed(golden_->name.begin(), golden_->name.end());
  std::mt19937 random(seed);
  const ggml::gguf::File file = ggml::gguf::File::open(golden_->path);
  int n_layer = 0;
  for (const auto& [key, value] : file.metadata().entries())
    if (key.ends_with(".block_count")) n_layer = static_cast<int>(*file.metadata().get_u32(key));
  const int n_devices = static_cast<int>(pointers_.size());
  PlanMaker maker(*golden_, n_devices, random);
  for (int round = 0; round < kRounds; ++round) {
    const RandomPlan made = maker.make(n_layer);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + made.what);
    ModelParams model_params;
    model_params.path = golden_->path;
    const auto model = Model::load(model_params, pointers_, made.plan, {});
    ContextParams params;
    params.n_ctx = 512;
    params.n_batch = 64;
    params.n_ubatch = std::array{64, 16, 5}[random() % 3];
    params.n_seq_max = 2;
    params.k_type = params.v_type = ggml::DType::f32;
    if (random() % 2 == 0)
      params.offload.device = ggml::DeviceId(1 + static_cast<int>(random() % static_cast<unsigned>(n_devices - 1)));
    params.offload.dense_from = params.offload.experts_from = 3;
    Context context(*model, pointers_, made.plan, params);
    std::vector<Rows> cases(3, Rows(kRows)), again(3, Rows(kRows));
    for (std::vector<Rows>* all : {&cases, &again}) {
      run_batch(context, *golden_, (*all)[0]);
      run_chunks(context, *golden_, (*all)[1]);
      run_pair(context, *golden_, (*all)[2]);
      context.check_integrity();
    }
    EXPECT_EQ(cases, again);
    for (const Rows& some : cases) {
      const Difference d = compare(some, golden_->exact, golden_->n_vocab);
      EXPECT_LE(d.max, golden_->all_f32() ? 1e-4 : golden_->f32_kv.max);
      EXPECT_LE(d.rms, golden_->all_f32() ? 2e-5 : golden_->f32_kv.rms);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SeveralCards,
                         testing::Values("llama", "llama-q6_k", "gemma3", "mixtral", "qwen3moe", "qwen3moe-q4_k",
                                         "glm4moe", "deepseek2-lite", "qwen3next"),
                         test_name);

}  // namespace
}  // namespace llama::golden
