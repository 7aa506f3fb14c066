#include <gtest/gtest.h>

#include <algorithm>

#include "llama/placement.h"
#include "placement/test_model.h"

namespace llama {
namespace {

using testing::blocks_model;
using testing::device_of;
using testing::devices;
using testing::rule;

constexpr std::uint64_t kKvPerToken = 64;
constexpr std::uint64_t kArena = 50000;

/// A context of `n_layer` layers with a fixed arena on every device that has layers.
ContextMemory simple_memory(int n_layer) {
  return {[=](int n_ctx) {
            return std::vector<std::uint64_t>(static_cast<std::size_t>(n_layer),
                                              kKvPerToken * static_cast<std::uint64_t>(n_ctx));
          },
          [](const Plan& plan, int) {
            std::vector<DeviceUse> use(plan.devices.size());
            for (const ggml::DeviceId device : plan.layer_device)
              use[static_cast<std::size_t>(device.v)].arenas = kArena;
            return use;
          }};
}

Plan fitted_plan(const PlanModel& model, const std::vector<PlanDevice>& list, const Fitted& fitted) {
  Plan plan = place(model, list, fitted.rules).plan;
  add_context_use(simple_memory(model.n_layer), fitted.n_ctx, plan);
  return plan;
}

int count_on(const Plan& plan, const std::string& part, const std::string& device) {
  return static_cast<int>(std::count_if(plan.tensors.begin(), plan.tensors.end(), [&](const TensorPlan& tensor) {
    return tensor.name.find(part) != std::string::npos && device_of(plan, tensor.name) == device;
  }));
}

std::uint64_t total_bytes(const PlanModel& model) {
  std::uint64_t bytes = 0;
  for (const PlanTensor& tensor : model.tensors) bytes += tensor.bytes;
  return bytes;
}

TEST(Fit, EverythingGoesToADeviceThatHoldsIt) {
  const PlanModel model = blocks_model(8, 1);
  const std::vector<PlanDevice> list = devices(1);
  const FitRequest request{.n_ctx = 1024, .margins = {}};
  const Fitted fitted = fit(model, list, {}, simple_memory(8), request);
  EXPECT_EQ(fitted.rules.n_gpu_layers, 9);
  EXPECT_TRUE(fitted.rules.tensor_rules.empty());
  EXPECT_EQ(flags_text(fitted.rules, fitted.n_ctx, list.size()), "-c 1024 -ngl 9");
}

TEST(Fit, ExpertsLeaveFirstWhereNotAllFits) {
  const PlanModel model = blocks_model(8, 0);
  const std::vector<PlanDevice> list = devices(1, total_bytes(model) / 2 + 8 * kKvPerToken * 1024 + kArena);
  const FitRequest request{.n_ctx = 1024, .margins = {}};
  const Fitted fitted = fit(model, list, {}, simple_memory(8), request);
  const Plan plan = fitted_plan(model, list, fitted);
  EXPECT_TRUE(fits(plan));
  EXPECT_EQ(count_on(plan, "attn_qkv", "CUDA0"), 8);
  const int on_card = count_on(plan, "ffn_up_exps.weight", "CUDA0");
  EXPECT_GT(on_card, 1);
  EXPECT_LT(on_card, 8);
  const std::string flags = flags_text(fitted.rules, fitted.n_ctx, list.size());
  EXPECT_NE(flags.find(R"()\.ffn_(up|down|gate_up|gate)_(ch|)exps=CPU")"), std::string::npos) << flags;
}

TEST(Fit, MarginsStayFree) {
  const PlanModel model = blocks_model(8, 0);
  const std::vector<PlanDevice> list = devices(2, total_bytes(model));
  FitRequest request{.n_ctx = 1024, .margins = {0, total_bytes(model) / 3, total_bytes(model) / 2}};
  const Fitted fitted = fit(model, list, {}, simple_memory(8), request);
  const Plan plan = fitted_plan(model, list, fitted);
  for (std::size_t d = 1; d < list.size(); ++d)
    EXPECT_LE(plan.use[d].total() + request.margins[d], list[d].free_bytes) << d;
}

TEST(Fit, WhatTheUserGaveIsKept) {
  const PlanModel model = blocks_model(8, 0);
  const std::vector<PlanDevice> list = devices(2, total_bytes(model) / 3);
  PlacementRules rules;
  rules.n_gpu_layers = 5;
  rules.tensor_rules = {rule(R"(blk\.7\.ffn_.*_exps)", "CPU")};
  rules.n_cpu_moe = 2;
  rules.cpu_moe_blocks = ExpertBlocks::first;
  const FitRequest request{.n_ctx = 512, .margins = {}};
  const Plan plan = fitted_plan(model, list, fit(model, list, rules, simple_memory(8), request));
  EXPECT_EQ(std::count(plan.layer_device.begin(), plan.layer_device.end(), ggml::DeviceId(0)), 4);
  EXPECT_EQ(device_of(plan, "blk.7.ffn_up_exps.weight"), "CPU");
  EXPECT_EQ(device_of(plan, "blk.0.ffn_up_exps.weight"), "CPU");
  EXPECT_EQ(device_of(plan, "blk.1.ffn_up_exps.weight"), "CPU");
  // Room that is left is used, even for a layer that is on the CPU.
  EXPECT_NE(device_of(plan, "blk.5.ffn_up_exps.weight"), "CPU");
  EXPECT_TRUE(fits(plan));
}

TEST(Fit, SplitOfTheUserIsKeptWithAsManyLayersAsFit) {
  const PlanModel model = blocks_model(8, 8);
  const std::vector<PlanDevice> list = devices(2, total_bytes(model) / 4 + kArena);
  PlacementRules rules;
  rules.tensor_split = {1, 3};
  const Fitted fitted = fit(model, list, rules, simple_memory(8), {.n_ctx = 128, .margins = {}});
  EXPECT_EQ(fitted.rules.tensor_split, rules.tensor_split);
  EXPECT_TRUE(fits(fitted_plan(model, list, fitted)));
  PlacementRules one_more = fitted.rules;
  one_more.n_gpu_layers = *fitted.rules.n_gpu_layers + 1;
  Plan plan = place(model, list, one_more).plan;
  add_context_use(simple_memory(8), 128, plan);
  EXPECT_FALSE(fits(plan));
}

TEST(Fit, ContextShrinksBeforeLayersLeave) {
  const PlanModel model = blocks_model(8, 8);
  const std::uint64_t weights = total_bytes(model) + 20000;
  const FitRequest request{.n_ctx = 65536, .choose_context = true, .least_context = 4096, .margins = {}};
  const std::vector<PlanDevice> list = devices(1, weights + kArena + 8 * kKvPerToken * 10000);
  Fitted fitted = fit(model, list, {}, simple_memory(8), request);
  EXPECT_EQ(fitted.rules.n_gpu_layers, 9);
  EXPECT_EQ(fitted.n_ctx % 256, 0);
  EXPECT_GE(fitted.n_ctx, 9728);
  EXPECT_LE(fitted.n_ctx, 10240);
  // Never below the least.
  const std::vector<PlanDevice> small = devices(1, weights / 2);
  fitted = fit(model, small, {}, simple_memory(8), request);
  EXPECT_EQ(fitted.n_ctx, 4096);
  EXPECT_LT(*fitted.rules.n_gpu_layers, 9);
  EXPECT_TRUE(fits(fitted_plan(model, small, fitted)));
}

TEST(Fit, LayersOfUnequalDevicesAreAContiguousSplit) {
  const PlanModel model = blocks_model(12, 12);
  std::vector<PlanDevice> list = devices(2);
  list[1].free_bytes = total_bytes(model) / 3 + kArena;
  list[2].free_bytes = total_bytes(model) + kArena;
  list[1].bandwidth = 2e9;  // small and fast
  const Fitted fitted = fit(model, list, {}, simple_memory(12), {.n_ctx = 64, .margins = {}});
  ASSERT_EQ(fitted.rules.tensor_split.size(), 2u);
  EXPECT_GT(fitted.rules.tensor_split[0], 1.0F);
  EXPECT_EQ(fitted.rules.n_gpu_layers, 13);
  const Plan plan = fitted_plan(model, list, fitted);
  EXPECT_TRUE(std::is_sorted(plan.layer_device.begin(), plan.layer_device.end(),
                             [](ggml::DeviceId a, ggml::DeviceId b) { return a.v < b.v; }));
  EXPECT_EQ(std::count(plan.layer_device.begin(), plan.layer_device.end(), ggml::DeviceId(1)),
            static_cast<int>(fitted.rules.tensor_split[0]));
  EXPECT_TRUE(fits(plan));
}

TEST(Fits, SmallestChangeIsTheSmallest) {
  const PlanModel model = blocks_model(8, 0);
  const ContextMemory memory = simple_memory(8);
  const std::vector<PlanDevice> list = devices(1, total_bytes(model) / 2 + 8 * kKvPerToken * 1024 + kArena);
  PlacementRules rules;
  Plan plan = place(model, list, rules).plan;
  add_context_use(memory, 1024, plan);
  ASSERT_FALSE(fits(plan));
  EXPECT_GT(shortfall(plan, 1), 0u);
  const std::string change = smallest_change(model, plan, rules, memory, 1024);
  ASSERT_TRUE(change.starts_with("--n-cpu-moe ")) << change;
  const auto fits_with = [&](int n) {
    rules.n_cpu_moe = n;
    Plan changed = place(model, list, rules).plan;
    add_context_use(memory, 1024, changed);
    return fits(changed);
  };
  const int n = std::stoi(change.substr(12));
  EXPECT_TRUE(fits_with(n));
  EXPECT_FALSE(fits_with(n - 1));
}

TEST(Fits, DenseModelsLeaveLayersOnTheCpu) {
  const PlanModel model = blocks_model(8, 8);
  const ContextMemory memory = simple_memory(8);
  const std::vector<PlanDevice> list = devices(1, total_bytes(model) / 2 + kArena);
  PlacementRules rules;
  rules.n_gpu_layers = 99;
  Plan plan = place(model, list, rules).plan;
  add_context_use(memory, 64, plan);
  const std::string change = smallest_change(model, plan, rules, memory, 64);
  ASSERT_TRUE(change.starts_with("-ngl ")) << change;
  EXPECT_GT(std::stoi(change.substr(5)), 0);
}

TEST(Fits, MappedWeightsOfTheHostNeedNoRoom) {
  const PlanModel model = blocks_model(8, 0);
  std::vector<PlanDevice> list = devices(0);
  list[0].free_bytes = 2 * kArena;
  PlacementRules rules;
  Plan plan = place(model, list, rules).plan;
  add_context_use(simple_memory(8), 64, plan);
  EXPECT_TRUE(fits(plan));
  rules.mapped = false;
  plan = place(model, list, rules).plan;
  add_context_use(simple_memory(8), 64, plan);
  EXPECT_FALSE(fits(plan));
  EXPECT_EQ(smallest_change(model, plan, rules, simple_memory(8), 64), "--mmap");
}

}  // namespace
}  // namespace llama
