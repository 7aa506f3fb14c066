#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "llama/placement.h"
#include "placement/test_model.h"
#include "test_support.h"

namespace llama {
namespace {

using testing::blocks_model;
using testing::device_of;
using testing::devices;
using testing::rule;

constexpr std::uint64_t kKvPerToken = 64;
constexpr std::uint64_t kArena = 50000;

/// A context of `n_layer` layers with a fixed arena on every device that has layers or weights.
ContextMemory simple_memory(int n_layer) {
  return {[=](int n_ctx) {
            return std::vector<std::uint64_t>(static_cast<std::size_t>(n_layer),
                                              kKvPerToken * static_cast<std::uint64_t>(n_ctx));
          },
          [](const Plan& plan, int) {
            std::vector<DeviceUse> use(plan.devices.size());
            for (const ggml::DeviceId device : plan.layer_device)
              use[static_cast<std::size_t>(device.v)].arenas = kArena;
            for (std::size_t d = 0; d < use.size(); ++d)
              if (plan.use[d].weights > 0) use[d].arenas = kArena;
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
  const std::vector<PlanDevice> small = devices(1, weights / 2 + kArena + 4 * kKvPerToken * 4096);
  fitted = fit(model, small, {}, simple_memory(8), request);
  EXPECT_GE(fitted.n_ctx, 4096);
  EXPECT_LT(fitted.n_ctx, 8192);
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

/// smallest_change() of rules that are planned as they are.
std::string change_of(const PlanModel& model, const std::vector<PlanDevice>& list, const PlacementRules& rules,
                      int n_ctx) {
  const ContextMemory memory = simple_memory(model.n_layer);
  const auto planned = [&](const PlacementRules& with, int context) {
    Plan plan = place(model, list, with).plan;
    add_context_use(memory, context, plan);
    return plan;
  };
  ChangeRequest request;
  request.rules = rules;
  request.n_ctx = n_ctx;
  request.plan_anew = [&](const PlacementRules& with, std::optional<int> context) {
    Plan plan = planned(with, context.value_or(n_ctx));
    return fits(plan) ? std::optional<Plan>(std::move(plan)) : std::nullopt;
  };
  const Plan plan = planned(rules, n_ctx);
  EXPECT_FALSE(fits(plan));
  return smallest_change(model, plan, memory, request);
}

TEST(Fits, SmallestChangeIsTheSmallest) {
  const PlanModel model = blocks_model(8, 0);
  const ContextMemory memory = simple_memory(8);
  const std::vector<PlanDevice> list = devices(1, total_bytes(model) / 2 + 8 * kKvPerToken * 1024 + kArena);
  PlacementRules rules;
  const std::string change = change_of(model, list, rules, 1024);
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
  const std::vector<PlanDevice> list = devices(1, total_bytes(model) / 2 + kArena);
  PlacementRules rules;
  rules.n_gpu_layers = 99;
  const std::string change = change_of(model, list, rules, 64);
  ASSERT_TRUE(change.starts_with("-ngl ")) << change;
  EXPECT_GT(std::stoi(change.substr(5)), 0);
}

TEST(Fits, ExpertsLeaveBeforeLayersDoWhereNeitherIsEnoughAlone) {
  const PlanModel model = blocks_model(8, 0);
  // Less than the bodies need: --n-cpu-moe alone does not do.
  const std::vector<PlanDevice> list = devices(1, kArena + 5 * kKvPerToken * 4096);
  PlacementRules rules;
  rules.n_gpu_layers = 99;
  EXPECT_TRUE(change_of(model, list, rules, 4096).starts_with("--cpu-moe -ngl "))
      << change_of(model, list, rules, 4096);
}

TEST(Fits, RulesThatPinExpertsWhereTheyDoNotFitAreNamed) {
  const PlanModel model = blocks_model(8, 0);
  const std::vector<PlanDevice> list = devices(1, total_bytes(model) / 2);
  PlacementRules rules;
  rules.tensor_rules = {rule("exps", "CUDA0")};
  EXPECT_EQ(change_of(model, list, rules, 64), R"(-ot "exps=CPU" in place of "exps=CUDA0")");
  // Pinned host memory cannot be given back as the pages of a file can.
  std::vector<PlanDevice> host = devices(1);
  host[0].free_bytes = total_bytes(model) / 2;
  rules.tensor_rules = {rule("exps", "CUDA_Host")};
  EXPECT_EQ(change_of(model, host, rules, 64), R"(-ot "exps=CPU" in place of "exps=CUDA_Host")");
}

TEST(Fits, ContextIsOfferedWhereNoPlacementDoes) {
  const PlanModel model = blocks_model(8, 0);
  std::vector<PlanDevice> list = devices(1, total_bytes(model) + kArena + 8 * kKvPerToken * 6000);
  list[0].free_bytes = 8 * kKvPerToken * 6000;
  PlacementRules rules;
  rules.n_gpu_layers = 99;
  EXPECT_EQ(change_of(model, list, rules, 65536).substr(0, 3), "-c ");
}

/// A model and a machine that are small enough to try every placement.
struct SmallCase {
  PlanModel model;
  std::vector<PlanDevice> list;
  PlacementRules rules;
  int n_ctx = 256;
};

/// At most 12 units (bodies, experts, head) on the CPU and up to two more devices. Trying all takes devices ^ units, so
/// only one case in 100 is of the largest.
SmallCase random_case(std::mt19937& random, bool large) {
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  SmallCase small;
  const int n_layer = large ? 6 : 2 + static_cast<int>(random() % 3);
  small.model = blocks_model(n_layer, large ? 1 : static_cast<int>(random() % 2));
  const auto total = static_cast<double>(total_bytes(small.model));
  small.list = devices(1 + static_cast<int>(random() % 2));
  for (std::size_t d = 1; d < small.list.size(); ++d) {
    small.list[d].free_bytes = static_cast<std::uint64_t>(total * uniform(0.1, 0.9)) + kArena;
    small.list[d].bandwidth = uniform(3e8, 3e9);
  }
  constexpr ExpertBlocks kForms[] = {ExpertBlocks::automatic, ExpertBlocks::first, ExpertBlocks::last,
                                     ExpertBlocks::even};
  if (random() % 3 > 0) small.rules.n_cpu_moe = 1 + static_cast<int>(random() % 3);
  small.rules.cpu_moe_blocks = kForms[random() % 4];
  if (random() % 4 == 0) small.rules.n_cpu_ffn = 1;
  if (random() % 6 == 0) small.rules.kv_offload = false;
  constexpr const char* kPinned[] = {R"(blk\.1\.ffn_.*exps)", R"(blk\.1\.ffn_up_exps)", R"(blk\.1\.)", "shexp|attn"};
  if (random() % 4 == 0) small.rules.tensor_rules = {rule(kPinned[random() % 4], random() % 2 == 0 ? "CPU" : "CUDA0")};
  return small;
}

/// Tries every way to lay the experts that no rule of the user places; the layers are where `rules` say. Gives the
/// least step time of those that fit.
double least_of_experts(const SmallCase& small, const PlacementRules& layer_rules, const std::vector<BufferRule>& all) {
  const ContextMemory memory = simple_memory(small.model.n_layer);
  const std::vector<std::uint64_t> kv = memory.kv_per_layer(small.n_ctx);
  const Plan base = place(small.model, small.list, layer_rules).plan;
  std::vector<std::size_t> blocks;
  for (std::size_t i = 0; i < base.tensors.size(); ++i) {
    const PlanTensor& tensor = small.model.tensors[i];
    const std::string& origin = base.tensors[i].rule;
    const bool is_ruled = origin.starts_with("-ot") || origin.starts_with("--");
    const auto block = static_cast<std::size_t>(tensor.layer);
    if (tensor.expert && !is_ruled && (blocks.empty() || blocks.back() != block)) blocks.push_back(block);
  }
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> on(blocks.size(), 0);  // device of each
  for (;;) {
    PlacementRules rules = layer_rules;
    for (std::size_t i = 0; i < blocks.size(); ++i)
      rules.tensor_rules.push_back(all[blocks[i] * small.list.size() + on[i]]);
    // Not what --n-cpu-moe and its like take: a rule would take it from them.
    Plan plan = place(small.model, small.list, rules).plan;
    add_context_use(memory, small.n_ctx, plan);
    if (fits(plan)) least = std::min(least, decode_seconds(small.model, plan, kv));
    std::size_t i = 0;
    while (i < on.size() && ++on[i] == small.list.size()) on[i++] = 0;
    if (i == on.size()) return least;
  }
}

/// The least step time of all rules that a --fit could answer with and that fit.
double least_seconds(const SmallCase& small) {
  const int n_devices = static_cast<int>(small.list.size()), n_layer = small.model.n_layer;
  std::vector<BufferRule> all;
  for (int block = 0; block < n_layer; ++block)
    for (const PlanDevice& device : small.list)
      all.push_back(rule("blk\\." + std::to_string(block) + R"(\.ffn_.*_exps)", device.name));
  double least = std::numeric_limits<double>::infinity();
  std::vector<int> layers(static_cast<std::size_t>(n_layer) + 1, 0);  // and the head
  for (;;) {
    std::vector<int> counts(small.list.size(), 0);
    for (const int device : layers) ++counts[static_cast<std::size_t>(device)];
    PlacementRules rules = small.rules;
    rules.n_gpu_layers = n_layer + 1 - counts[0];
    rules.tensor_split.assign(counts.begin() + 1, counts.end());
    least = std::min(least, least_of_experts(small, rules, all));
    // The next order of devices that never falls.
    std::size_t at = layers.size();
    while (at > 0 && layers[at - 1] == n_devices - 1) --at;
    if (at == 0) return least;
    std::fill(layers.begin() + static_cast<std::ptrdiff_t>(at) - 1, layers.end(), layers[at - 1] + 1);
  }
}

/// Layers of which an expert lies on the CPU.
int n_expert_layers_on_cpu(const PlanModel& model, const Plan& plan) {
  std::vector<bool> out(static_cast<std::size_t>(model.n_layer), false);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    if (model.tensors[i].expert && plan.tensors[i].places.front().device.v == 0)
      out[static_cast<std::size_t>(model.tensors[i].layer)] = true;
  return static_cast<int>(std::count(out.begin(), out.end(), true));
}

TEST(Fit, KeepsTheRulesAndIsWithinTwoPercentOfTheBestOfAllPlacementsInAThousandCases) {
  std::mt19937 random(41);
  int n_possible = 0;
  const int n_rounds = tandem::rounds(1000);
  for (int round = 0; round < n_rounds; ++round) {
    const SmallCase small = random_case(random, round % 100 == 0);
    const ContextMemory memory = simple_memory(small.model.n_layer);
    const Fitted fitted = fit(small.model, small.list, small.rules, memory, {.n_ctx = small.n_ctx, .margins = {}});
    const Plan plan = fitted_plan(small.model, small.list, fitted);
    const double least = least_seconds(small);
    ASSERT_EQ(fits(plan), !std::isinf(least)) << round;
    if (std::isinf(least)) continue;
    ++n_possible;
    if (small.rules.tensor_rules.empty()) {
      const auto n_experts = static_cast<int>(
          std::count_if(small.model.tensors.begin(), small.model.tensors.end(),
                        [](const PlanTensor& tensor) { return tensor.name.ends_with("ffn_up_exps.weight"); }));
      EXPECT_GE(n_expert_layers_on_cpu(small.model, plan), std::min(small.rules.n_cpu_moe, n_experts)) << round;
    }
    const double seconds = decode_seconds(small.model, plan, memory.kv_per_layer(small.n_ctx));
    EXPECT_LE(seconds, 1.02 * least) << round << ": " << seconds / least;
  }
  EXPECT_GT(10 * n_possible, 7 * n_rounds);
}

TEST(Fit, ContextComesBackWhereNothingOfItIsOnADevice) {
  const PlanModel model = blocks_model(8, 8);
  const FitRequest request{.n_ctx = 65536, .choose_context = true, .least_context = 4096, .margins = {}};
  // A card that holds not even one layer.
  const std::vector<PlanDevice> list = devices(1, 1000);
  const Fitted fitted = fit(model, list, {}, simple_memory(8), request);
  EXPECT_EQ(fitted.rules.n_gpu_layers, 0);
  EXPECT_EQ(fitted.n_ctx, 65536);
}

TEST(Fit, LayersThatNglKeepsOnTheCpuDoNotCostContext) {
  const PlanModel model = blocks_model(8, 8);
  PlacementRules rules;
  rules.n_gpu_layers = 5;
  const FitRequest request{.n_ctx = 65536, .choose_context = true, .least_context = 4096, .margins = {}};
  const Fitted fitted = fit(model, devices(1), rules, simple_memory(8), request);
  EXPECT_EQ(fitted.n_ctx, 65536);
  EXPECT_EQ(fitted.rules.n_gpu_layers, 5);
}

TEST(Fit, MarginsAreGivenUpWhereTheRulesFitOnlyWithoutThem) {
  const PlanModel model = blocks_model(8, 0);
  const std::vector<PlanDevice> list = devices(2, total_bytes(model));
  PlacementRules rules;
  rules.n_gpu_layers = 99;
  rules.tensor_rules = {rule("exps", "CUDA1")};
  const std::uint64_t margin = total_bytes(model) / 2;
  const Fitted fitted = fit(model, list, rules, simple_memory(8), {.n_ctx = 64, .margins = {0, margin, margin}});
  EXPECT_TRUE(fits(fitted_plan(model, list, fitted)));
  ASSERT_EQ(fitted.notes.size(), 1u);
  EXPECT_NE(fitted.notes[0].find("margins: they are not kept"), std::string::npos);
}

TEST(Fit, ExplanationCountsExpertsThatRulesPin) {
  const PlanModel model = blocks_model(8, 0);
  PlacementRules rules;
  rules.n_cpu_moe = 3;
  const Fitted fitted = fit(model, devices(1), rules, simple_memory(8), {.n_ctx = 64, .margins = {}});
  const auto has = [&](const std::string& text) {
    return std::any_of(fitted.explanation.begin(), fitted.explanation.end(),
                       [&](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  EXPECT_TRUE(has("CUDA0: 9 layers, experts of 5 layers,"));
  EXPECT_TRUE(has("CPU: 0 layers, experts of 3 layers (of 3 by your rules)"));
}

TEST(Fit, MainDeviceOfPromptsDoesNotMoveLayers) {
  const PlanModel model = blocks_model(8, 0);
  for (const int main_gpu : {-1, 0, 1}) {
    PlacementRules rules;
    rules.main_gpu = main_gpu;
    const Fitted fitted = fit(model, devices(2), rules, simple_memory(8), {.n_ctx = 64, .margins = {}});
    EXPECT_EQ(fitted.rules.n_gpu_layers, 9) << main_gpu;
  }
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
  EXPECT_EQ(change_of(model, list, rules, 64), "--mmap");
}

}  // namespace
}  // namespace llama
