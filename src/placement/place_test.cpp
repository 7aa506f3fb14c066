#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "ggml/error.h"
#include "llama/placement.h"
#include "placement/expert_blocks.h"
#include "placement/test_model.h"

namespace llama {
namespace {

using testing::blocks_model;
using testing::device_of;
using testing::devices;
using testing::rule;

/// Blocks whose routed experts are on the CPU.
std::string cpu_blocks(const Plan& plan) {
  std::set<int> blocks;
  for (const TensorPlan& tensor : plan.tensors)
    if (is_routed_expert(tensor.name) && tensor.places.front().device.v == 0)
      blocks.insert(std::atoi(tensor.name.c_str() + 4));
  return ranges_text({blocks.begin(), blocks.end()});
}

bool any_contains(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

TEST(Layers, CountFromTheBackWithTheHeadAsLastOne) {
  const PlanModel model = blocks_model(4, 0);
  PlacementRules rules;
  const auto on_gpu = [&](int n) {
    rules.n_gpu_layers = n;
    const Plan plan = place(model, devices(1), rules).plan;
    std::string text;
    for (const ggml::DeviceId device : plan.layer_device) text += device.v == 0 ? 'c' : 'g';
    return text + (plan.output_device.v == 0 ? 'c' : 'g');
  };
  EXPECT_EQ(on_gpu(0), "ccccc");
  EXPECT_EQ(on_gpu(1), "ccccg");
  EXPECT_EQ(on_gpu(4), "cgggg");
  EXPECT_EQ(on_gpu(5), "ggggg");
  EXPECT_EQ(on_gpu(99), "ggggg");
  EXPECT_EQ(on_gpu(kAllLayers), "ggggg");
}

TEST(Layers, SplitFollowsTheCumulativeSharesOfTheDevices) {
  PlacementRules rules;
  rules.n_gpu_layers = 99;
  rules.tensor_split = {1, 1};
  const auto first_of_second = [&](int n_layer) {
    const Plan plan = place(blocks_model(n_layer, 0), devices(2), rules).plan;
    return std::find(plan.layer_device.begin(), plan.layer_device.end(), ggml::DeviceId(2)) - plan.layer_device.begin();
  };
  EXPECT_EQ(first_of_second(61), 31);
  EXPECT_EQ(first_of_second(48), 25);
  rules.tensor_split = {3, 1};
  EXPECT_EQ(first_of_second(7), 6);
  rules.tensor_split = {0, 1};
  EXPECT_EQ(first_of_second(7), 0);
  // Without shares by free memory.
  rules.tensor_split = {};
  std::vector<PlanDevice> two = devices(2);
  two[1].free_bytes = 3 * two[2].free_bytes;
  const Plan plan = place(blocks_model(7, 0), two, rules).plan;
  EXPECT_EQ(std::count(plan.layer_device.begin(), plan.layer_device.end(), ggml::DeviceId(1)), 6);
}

TEST(Layers, TensorsThatBecomeOneAreNoPagesOfTheFile) {
  PlanModel model = blocks_model(2, 0);
  for (PlanTensor& tensor : model.tensors)
    if (tensor.name.find("gate_exps") != std::string::npos || tensor.name.find("up_exps") != std::string::npos)
      tensor.merge_group = tensor.layer;
  PlacementRules rules;
  rules.cpu_moe = true;
  rules.tensor_rules = {rule(R"(blk\.1\.ffn_up_exps)", "CUDA0")};
  const Plan plan = place(model, devices(1), rules).plan;
  const auto kind = [&](const std::string& name) {
    const auto found = std::find_if(plan.tensors.begin(), plan.tensors.end(),
                                    [&](const TensorPlan& tensor) { return tensor.name == name; });
    return found->places.front().kind;
  };
  EXPECT_EQ(kind("blk.0.ffn_gate_exps.weight"), ggml::BufferKind::host_pageable);
  EXPECT_EQ(kind("blk.0.ffn_up_exps.weight"), ggml::BufferKind::host_pageable);
  EXPECT_EQ(kind("blk.0.ffn_down_exps.weight"), ggml::BufferKind::mapping);
  // These lie apart and stay what they are.
  EXPECT_EQ(kind("blk.1.ffn_gate_exps.weight"), ggml::BufferKind::mapping);
  EXPECT_EQ(kind("blk.1.ffn_up_exps.weight"), ggml::BufferKind::device);
}

TEST(Layers, SplitModeNoneUsesTheMainDeviceOnly) {
  PlacementRules rules;
  rules.split_mode = SplitMode::none;
  rules.main_gpu = 1;
  const PlanModel model = blocks_model(4, 0);
  for (const ggml::DeviceId device : place(model, devices(2), rules).plan.layer_device) EXPECT_EQ(device.v, 2);
  rules.main_gpu = -1;
  for (const ggml::DeviceId device : place(model, devices(2), rules).plan.layer_device) EXPECT_EQ(device.v, 0);
  rules.main_gpu = 2;
  EXPECT_THROW((void)place(model, devices(2), rules), ggml::Error);
}

TEST(Layers, MainDeviceIsNotAPlaceOfLayersWhereSeveralShareThem) {
  PlacementRules rules;
  const PlanModel model = blocks_model(4, 0);
  const Plan plan = place(model, devices(2), rules).plan;
  for (const int main_gpu : {-1, 0, 1}) {
    rules.main_gpu = main_gpu;
    EXPECT_EQ(place(model, devices(2), rules).plan.layer_device, plan.layer_device) << main_gpu;
  }
  rules.main_gpu = 2;
  EXPECT_THROW((void)place(model, devices(2), rules), ggml::Error);
}

TEST(PromptOffload, PaysFromThePromptOnThatKeepsTheCpuLongerThanTheLink) {
  const PlanModel model = blocks_model(8, 0);
  std::vector<PlanDevice> list = devices(2);
  list[0].bandwidth = 60e9;
  list[0].arithmetic = 4e12;
  for (std::size_t d = 1; d < list.size(); ++d) list[d].arithmetic = 2e14;
  list[2].link = 50e9;
  PlacementRules rules;
  OffloadRequest request;
  request.n_batch = request.n_ubatch = 1 << 20;
  const auto offload = [&](const Plan& plan) { return prompt_offload(model, plan, rules, request); };
  EXPECT_FALSE(offload(place(model, list, rules).plan).has_value());  // all on devices
  rules.cpu_moe = true;
  const Plan plan = place(model, list, rules).plan;
  const std::optional<PromptOffload> best_link = offload(plan);
  ASSERT_TRUE(best_link.has_value());
  EXPECT_EQ(best_link->device.v, 2);
  rules.main_gpu = 0;
  const std::optional<PromptOffload> named = offload(plan);
  ASSERT_TRUE(named.has_value());
  EXPECT_EQ(named->device.v, 1);
  // Experts of q8_0 (34 bytes for 32 weights) of which an eighth is used: 34/32 / 25e9 = 2 * tokens / 8 / 4e12.
  EXPECT_NEAR(named->tokens, 34.0 / 32 / 25e9 * 4e12 * 8 / 2, 2.0);
  EXPECT_NEAR(best_link->tokens, 0.5 * named->tokens, 2.0);
  rules.main_gpu = -1;
  EXPECT_FALSE(offload(plan).has_value());
  rules.main_gpu = 0;
  list[1].link = 1e3;
  EXPECT_EQ(offload(place(model, list, rules).plan)->tokens, 0);
}

TEST(PromptOffload, BatchSizesThatWereGivenReplaceTheModelledOnes) {
  const PlanModel model = blocks_model(4, 0);
  std::vector<PlanDevice> list = devices(1);
  list[0].bandwidth = 60e9;
  list[0].arithmetic = 4e12;
  list[1].arithmetic = 2e14;
  PlacementRules rules;
  rules.cpu_moe = true;
  const Plan plan = place(model, list, rules).plan;
  OffloadRequest request;
  request.n_batch = 2048;
  request.n_ubatch = 512;
  const OpOffload modelled = prompt_offload(model, plan, rules, request)->offload;
  EXPECT_FALSE(modelled.by_ubatch);
  EXPECT_GT(modelled.experts_from, 2);
  request.min_batch = 7;
  const OpOffload plain = prompt_offload(model, plan, rules, request)->offload;
  EXPECT_TRUE(plain.by_ubatch);
  EXPECT_EQ(plain.dense_from, 7);
  EXPECT_EQ(plain.experts_from, 7);
  request.batch_size = 40;  // an eighth of the experts is used
  const OpOffload by_experts = prompt_offload(model, plan, rules, request)->offload;
  EXPECT_EQ(by_experts.dense_from, 40);
  EXPECT_EQ(by_experts.experts_from, 320);
  request.batch_size.reset();
  request.min_batch = 1;  // one token is never sent weights for
  EXPECT_EQ(prompt_offload(model, plan, rules, request)->offload.experts_from, 2);
  request.min_batch.reset();
  Plan unknown = plan;
  unknown.devices[1].link = 0;
  const PromptOffload without = *prompt_offload(model, unknown, rules, request);
  EXPECT_FALSE(without.has_profile);
  EXPECT_EQ(without.offload.dense_from, 32);
  EXPECT_EQ(without.offload.experts_from, 256);
  request.enabled = false;
  EXPECT_FALSE(prompt_offload(model, plan, rules, request).has_value());
}

TEST(Flags, SayEveryRule) {
  PlacementRules rules;
  rules.n_gpu_layers = 7;
  rules.tensor_split = {0.1F, 3};
  rules.tensor_rules = {rule("exps", "CPU"), rule(R"(attn\.)", "CUDA0")};
  rules.split_mode = SplitMode::none;
  rules.main_gpu = 1;
  rules.cpu_moe = true;
  rules.n_cpu_moe = 3;
  rules.cpu_moe_blocks = ExpertBlocks::last;
  rules.n_cpu_ffn = 2;
  rules.kv_offload = false;
  EXPECT_EQ(flags_text(rules, 512, 3),
            R"(-c 512 -ngl 7 -ts 0.100000001,3 -ot "exps=CPU,attn\.=CUDA0" -sm none -mg 1 --cpu-moe )"
            "--n-cpu-moe 3:last --n-cpu-ffn 2 -nkvo");
}

TEST(Flags, WordsAreQuotedSoThatAShellLeavesThemAlone) {
  EXPECT_EQ(shell_quoted(R"(blk\.1\.=CPU)"), R"("blk\.1\.=CPU")");
  EXPECT_EQ(shell_quoted("weight$=CPU"), "'weight$=CPU'");
  EXPECT_EQ(shell_quoted("(?!a)'=CPU"), R"('(?!a)'\''=CPU')");
  EXPECT_EQ(shell_quoted(R"(a\\b=CPU)"), R"('a\\b=CPU')");
}

TEST(Layers, CacheFollowsTheLayersUnlessItIsKeptInHostMemory) {
  PlacementRules rules;
  rules.n_gpu_layers = 3;
  const PlanModel model = blocks_model(4, 0);
  Plan plan = place(model, devices(1), rules).plan;
  EXPECT_EQ(plan.kv_device, plan.layer_device);
  rules.kv_offload = false;
  plan = place(model, devices(1), rules).plan;
  EXPECT_EQ(plan.kv_device, std::vector<ggml::DeviceId>(4, ggml::DeviceId(0)));
  EXPECT_EQ(plan.layer_device.back().v, 1);
}

TEST(Layers, EmbeddingStaysInHostMemoryAndATiedHeadIsASecondCopy) {
  PlacementRules rules;
  Plan plan = place(blocks_model(2, 0), devices(1), rules).plan;
  EXPECT_EQ(device_of(plan, "token_embd.weight"), "CPU");
  EXPECT_EQ(device_of(plan, "output.weight"), "CUDA0");
  plan = place(blocks_model(2, 0, true), devices(1), rules).plan;
  ASSERT_EQ(plan.tensors.front().places.size(), 2u);
  EXPECT_EQ(plan.tensors.front().places[0].device.v, 0);
  EXPECT_EQ(plan.tensors.front().places[1].device.v, 1);
  EXPECT_EQ(plan.tensors.front().places[1].role, ggml::PlacementRole::replica);
  rules.n_gpu_layers = 0;
  EXPECT_EQ(place(blocks_model(2, 0, true), devices(1), rules).plan.tensors.front().places.size(), 1u);
}

TEST(TensorRules, FirstMatchWinsAndTheOutcomeOfEachRuleIsCounted) {
  PlacementRules rules;
  rules.n_gpu_layers = 99;
  rules.tensor_rules = {rule(R"(blk\.(0|1)\.ffn_.*_exps\.)", "CUDA1"), rule("exps", "CPU")};
  const Placed placed = place(blocks_model(4, 0), devices(2), rules);
  EXPECT_EQ(device_of(placed.plan, "blk.0.ffn_up_exps.weight"), "CUDA1");
  EXPECT_EQ(device_of(placed.plan, "blk.1.ffn_down_exps.bias"), "CUDA1");
  EXPECT_EQ(device_of(placed.plan, "blk.2.ffn_up_exps.weight"), "CPU");
  EXPECT_EQ(device_of(placed.plan, "blk.2.ffn_up_shexp.weight"), "CUDA0");
  ASSERT_EQ(placed.rules.size(), 2u);
  EXPECT_EQ(placed.rules[0].n_tensors, 8);
  EXPECT_EQ(placed.rules[1].n_tensors, 8);
  EXPECT_EQ(placed.rules[1].n_shadowed, 8);
  EXPECT_EQ(placed.rules[1].shadower, R"(-ot blk\.(0|1)\.ffn_.*_exps\.=CUDA1)");
  EXPECT_TRUE(placed.warnings.empty());
  EXPECT_TRUE(any_contains(placed.notes, "8 more are taken by an earlier rule, first by -ot blk"));
}

TEST(TensorRules, HoldInBothDirectionsAndWithoutLayersOnGpus) {
  PlacementRules rules;
  rules.n_gpu_layers = 0;
  rules.tensor_rules = {rule(R"(blk\.1\.attn)", "CUDA0"), rule("token_embd", "CUDA0")};
  const Plan plan = place(blocks_model(2, 0), devices(1), rules).plan;
  EXPECT_EQ(device_of(plan, "blk.1.attn_qkv.weight"), "CUDA0");
  EXPECT_EQ(device_of(plan, "blk.0.attn_qkv.weight"), "CPU");
  EXPECT_EQ(plan.input_device.v, 1);
}

TEST(TensorRules, ComeBeforeWhatCpuMoeMeans) {
  PlacementRules rules;
  rules.cpu_moe = true;
  rules.tensor_rules = {rule(R"(blk\.3\.)", "CUDA0")};
  EXPECT_EQ(cpu_blocks(place(blocks_model(5, 1), devices(1), rules).plan), "1-2,4");
}

TEST(TensorRules, PinnedHostMemoryIsTheCpuWithAnotherKindOfBuffer) {
  PlacementRules rules;
  rules.tensor_rules = {rule("ffn_up_exps", "CUDA_Host")};
  const Plan plan = place(blocks_model(1, 0), devices(1), rules).plan;
  const auto up = std::find_if(plan.tensors.begin(), plan.tensors.end(),
                               [](const TensorPlan& t) { return t.name == "blk.0.ffn_up_exps.weight"; });
  EXPECT_EQ(up->places.front().device.v, 0);
  EXPECT_EQ(up->places.front().kind, ggml::BufferKind::host_pinned);
}

TEST(TensorRules, UnknownBufferTypeListsTheKnownOnes) {
  PlacementRules rules;
  rules.tensor_rules = {rule("exps", "NOSUCH")};
  try {
    (void)place(blocks_model(1, 0), devices(2), rules);
    FAIL();
  } catch (const ggml::Error& error) {
    EXPECT_NE(error.message().find("unknown buffer type \"NOSUCH\""), std::string::npos);
    EXPECT_NE(error.message().find("Invalid tensor buffer type override: exps=NOSUCH"), std::string::npos);
    EXPECT_EQ(error.hint(), "Available buffer types:\n  CPU\n  CUDA0\n  CUDA1\n  CUDA_Host");
  }
}

TEST(TensorRules, RuleThatMatchesNothingIsWarnedOfWithTheNearestNames) {
  PlacementRules rules;
  rules.tensor_rules = {rule(R"(blk\.3\.ffn_.*_exp\.)", "CPU")};
  const Placed placed = place(blocks_model(5, 0), devices(1), rules);
  ASSERT_EQ(placed.warnings.size(), 1u);
  EXPECT_TRUE(placed.warnings[0].starts_with(R"(-ot: 'blk\.3\.ffn_.*_exp\.' matches no tensor; nearest: blk.3.ffn_)"))
      << placed.warnings[0];
}

TEST(TensorRules, RuleThatEarlierOnesShadowWhollyIsWarnedOfWithTheFirstOfThem) {
  PlacementRules rules;
  rules.tensor_rules = {rule("exps", "CPU"), rule("up_exps", "CUDA0")};
  const Placed placed = place(blocks_model(2, 0), devices(1), rules);
  ASSERT_EQ(placed.warnings.size(), 1u);
  EXPECT_EQ(placed.warnings[0],
            "-ot up_exps=CUDA0 places nothing: all 2 tensors that it matches are taken by -ot exps=CPU");
}

TEST(CpuMoe, BlocksAreThoseOfTheSpecification) {
  const PlanModel deepseek = blocks_model(61, 3), qwen = blocks_model(48, 0);
  PlacementRules rules;
  rules.n_gpu_layers = 999;
  rules.n_cpu_moe = 10;
  rules.tensor_split = {1, 1};
  struct Row {
    ExpertBlocks which;
    const char *deepseek1, *deepseek2, *qwen1, *qwen2;
  };
  for (const Row& row : {Row{ExpertBlocks::automatic, "3-12", "3-7,31-35", "0-9", "0-4,25-29"},
                         Row{ExpertBlocks::first, "3-12", "3-12", "0-9", "0-9"},
                         Row{ExpertBlocks::last, "51-60", "51-60", "38-47", "38-47"},
                         Row{ExpertBlocks::even, "3-12", "3-7,31-35", "0-9", "0-4,25-29"}}) {
    rules.cpu_moe_blocks = row.which;
    EXPECT_EQ(cpu_blocks(place(deepseek, devices(1), rules).plan), row.deepseek1);
    EXPECT_EQ(cpu_blocks(place(deepseek, devices(2), rules).plan), row.deepseek2);
    EXPECT_EQ(cpu_blocks(place(qwen, devices(1), rules).plan), row.qwen1);
    EXPECT_EQ(cpu_blocks(place(qwen, devices(2), rules).plan), row.qwen2);
  }
}

TEST(CpuMoe, BlocksThatAreOnTheCpuAlreadyAreTakenFirst) {
  PlacementRules rules;
  rules.n_gpu_layers = 9;  // blocks 0-1 stay
  rules.tensor_split = {1, 1};
  rules.n_cpu_moe = 4;
  EXPECT_EQ(cpu_blocks(place(blocks_model(10, 0), devices(2), rules).plan), "0-2,7");
  rules.n_cpu_moe = 2;
  const Placed placed = place(blocks_model(10, 0), devices(2), rules);
  EXPECT_TRUE(any_contains(placed.notes, "--n-cpu-moe 2 changes nothing"));
}

TEST(CpuMoe, AsManyAsThereAreMeansAllAndSharedExpertsStay) {
  PlacementRules rules;
  rules.n_cpu_moe = 1000;
  const Plan plan = place(blocks_model(6, 2), devices(2), rules).plan;
  EXPECT_EQ(cpu_blocks(plan), "2-5");
  EXPECT_EQ(device_of(plan, "blk.5.ffn_down_exps.bias"), "CPU");
  EXPECT_EQ(device_of(plan, "blk.5.ffn_up_shexp.weight"), "CUDA1");
  EXPECT_EQ(device_of(plan, "blk.5.ffn_gate_inp.weight"), "CUDA1");
}

TEST(CpuMoe, DenseFeedForwardsHaveAFlagOfTheirOwn) {
  PlacementRules rules;
  rules.n_cpu_ffn = 1;
  const Plan plan = place(blocks_model(4, 2), devices(1), rules).plan;
  EXPECT_EQ(device_of(plan, "blk.0.ffn_up.weight"), "CPU");
  EXPECT_EQ(device_of(plan, "blk.1.ffn_up.weight"), "CUDA0");
  EXPECT_EQ(device_of(plan, "blk.2.ffn_up_exps.weight"), "CUDA0");
}

TEST(CpuMoe, NamesOfExpertsAreKnown) {
  for (const char* name : {"blk.1.ffn_up_exps.weight", "blk.1.ffn_gate_up_exps.weight", "blk.1.ffn_down_exps.bias",
                           "blk.1.ffn_gate_chexps.weight", "blk.1.ffn_up_exps.scale"})
    EXPECT_TRUE(is_routed_expert(name)) << name;
  for (const char* name : {"blk.1.ffn_up_shexp.weight", "blk.1.ffn_gate_inp.weight", "blk.1.ffn_up.weight",
                           "blk.1.exp_probs_b.bias", "blk.1.ffn_norm.weight"})
    EXPECT_FALSE(is_routed_expert(name)) << name;
}

TEST(CpuMoe, NoteSaysWhereAFlagFindsNothingToMove) {
  PlacementRules rules;
  rules.n_cpu_ffn = 2;
  EXPECT_TRUE(any_contains(place(blocks_model(4, 0), devices(1), rules).notes,
                           "--n-cpu-ffn 2 has no effect: the model has no dense feed-forward"));
  rules = {};
  rules.cpu_moe = true;
  EXPECT_TRUE(any_contains(place(blocks_model(4, 4), devices(1), rules).notes,
                           "--cpu-moe has no effect: the model has no experts"));
}

TEST(Place, EveryTensorHasOnePrimaryPlaceAndTheDevicesCountThemAll) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const int n_layer = 1 + static_cast<int>(random() % 12);
    const PlanModel model = blocks_model(n_layer, static_cast<int>(random() % 3), random() % 2 == 0);
    PlacementRules rules;
    if (random() % 2 == 0) rules.n_gpu_layers = static_cast<int>(random() % 15);
    if (random() % 2 == 0) rules.tensor_rules.push_back(rule("exps", random() % 2 == 0 ? "CPU" : "CUDA0"));
    rules.n_cpu_moe = static_cast<int>(random() % 6);
    rules.n_cpu_ffn = static_cast<int>(random() % 3);
    const Plan plan = place(model, devices(1 + static_cast<int>(random() % 3)), rules).plan;
    std::vector<std::uint64_t> sums(plan.devices.size(), 0);
    ASSERT_EQ(plan.tensors.size(), model.tensors.size());
    for (const TensorPlan& tensor : plan.tensors) {
      EXPECT_EQ(tensor.places.front().role, ggml::PlacementRole::primary);
      EXPECT_FALSE(tensor.rule.empty());
      for (const TensorPlan::Place& place : tensor.places)
        sums[static_cast<std::size_t>(place.device.v)] += place.bytes;
    }
    for (std::size_t d = 0; d < sums.size(); ++d) EXPECT_EQ(sums[d], plan.use[d].weights);
  }
}

}  // namespace
}  // namespace llama
