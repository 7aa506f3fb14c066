#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ggml/cpu.h"
#include "ggml/gguf.h"
#include "models/golden.h"
#include "models/simulated_machine.h"
#include "models/test_device.h"

/// Whole models on a CPU and a real card together, with and without weights that are sent there for prompts.
namespace llama::golden {
namespace {

enum class Where { experts_on_cpu, layers_on_cpu, every_third_on_cpu };

struct Case {
  Where where;
  const char* name;
  bool sends = true;
  int n_ubatch = 128;
  bool only_used = true, ahead = true;
};
constexpr Case kCases[] = {
    {Where::experts_on_cpu, "experts on the CPU", false},
    {Where::experts_on_cpu, "experts sent", true},
    {Where::experts_on_cpu, "experts sent, all of them, small micro-batches", true, 16, false},
    {Where::experts_on_cpu, "experts sent in turn", true, 16, true, false},
    {Where::layers_on_cpu, "layers sent", true},
    {Where::every_third_on_cpu, "some tensors on the CPU", false},
    {Where::every_third_on_cpu, "some tensors sent", true, 16},
};

class Hybrid : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = load(GetParam());
    if (golden_ == nullptr) GTEST_SKIP() << "no golden file";
    card_ = make_test_device();
    if (card_ == nullptr) GTEST_SKIP() << "no such device here";
    cpu_ = ggml::make_cpu_device({});
  }

  [[nodiscard]] Plan plan(Where where) const {
    const ggml::gguf::File file = ggml::gguf::File::open(golden_->path);
    int n_layer = 0, n = 0;
    for (const auto& [key, value] : file.metadata().entries())
      if (key.ends_with(".block_count")) n_layer = static_cast<int>(*file.metadata().get_u32(key));
    Plan plan = SimulatedMachine::all_on(where == Where::layers_on_cpu ? 0 : 1, n_layer);
    for (const auto& tensor : file.tensors()) {
      const bool moves = where == Where::experts_on_cpu       ? tensor.name.find("_exps.") != std::string::npos
                         : where == Where::every_third_on_cpu ? n++ % 3 == 0
                                                              : false;
      if (moves) SimulatedMachine::put(plan, tensor.name, 0);
    }
    return plan;
  }

  std::unique_ptr<Golden> golden_;
  std::unique_ptr<ggml::Device> cpu_, card_;
};

TEST_P(Hybrid, GivesTheGoldenLogits) {
  const std::vector<ggml::Device*> devices{cpu_.get(), card_.get()};
  for (const Case& c : kCases) {
    if (c.where == Where::experts_on_cpu && golden_->experts.empty()) continue;
    const Plan plan = this->plan(c.where);
    ModelParams model_params;
    model_params.path = golden_->path;
    const auto model = Model::load(model_params, devices, plan, {});
    ContextParams params;
    params.n_ctx = 512;
    params.n_batch = 128;
    params.n_ubatch = c.n_ubatch;
    params.n_seq_max = 2;
    params.k_type = params.v_type = ggml::DType::f32;
    if (c.sends) params.offload.device = ggml::DeviceId(1);
    params.offload.dense_from = params.offload.experts_from = 3;  // steps of two sequences decode
    params.offload.only_used_experts = c.only_used;
    params.offload.ahead = c.ahead;
    Context context(*model, devices, plan, params);
    std::vector<Rows> rows(4, Rows(kRows));
    run_single(context, *golden_, rows[0]);
    run_batch(context, *golden_, rows[1]);
    run_chunks(context, *golden_, rows[2]);
    run_pair(context, *golden_, rows[3]);
    for (const Rows& some : rows) {
      const Difference d = compare(some, golden_->exact, golden_->n_vocab);
      EXPECT_LE(d.max, golden_->all_f32() ? 1e-4 : golden_->f32_kv.max) << c.name;
      EXPECT_LE(d.rms, golden_->all_f32() ? 2e-5 : golden_->f32_kv.rms) << c.name;
    }
    const std::uint64_t sent = context.stats().prompt.scheduler.links[1].weight_bytes;
    EXPECT_EQ(sent > 0, c.sends) << c.name;
    EXPECT_EQ(context.stats().decode.scheduler.links[1].weight_bytes, 0U) << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Hybrid,
                         testing::Values("llama", "llama-q4_0", "llama-q6_k", "llama-q8_0", "llama-bf16", "gemma3",
                                         "mixtral", "qwen3moe", "qwen3moe-q4_k", "qwen3moe-q8_0", "glm4moe", "gpt-oss",
                                         "deepseek2-lite", "qwen3next"),
                         test_name);

}  // namespace
}  // namespace llama::golden
