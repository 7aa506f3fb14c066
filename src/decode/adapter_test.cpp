#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llama/sampler.h"
#include "model/weights.h"
#include "models/adapter_fixture.h"
#include "models/allocation_count.h"
#include "models/simulated_machine.h"

/// LoRA adapters against models with the same changes in their weights.
namespace llama {
namespace {

using ggml::DType;
using golden::adaptable;
using golden::distance;
using golden::F32Model;
using golden::Lora;
using golden::Rows;
using golden::small_context;

// Merging is exact. So in double precision adapted and merged weights are the same model, whose logits may differ by a
// step of f32 when they are stored; natively sums are rounded, which merged weights suffer as well, some models more.
constexpr double kExact = 0x1p-22;  // times the largest logit
constexpr double kNative = 1e-4;    // as the goldens of F32 models
constexpr double kChange = 0.5;     // what an adapter changes at least: else a test says nothing

/// How many of the tensors are not of blocks behind the last layer: those predict further tokens and are left out.
int n_evaluated(const std::vector<std::string>& names, int n_layer) {
  return static_cast<int>(std::ranges::count_if(names, [&](const std::string& name) {
    return !name.starts_with("blk.") || std::stoi(name.substr(4)) < n_layer;
  }));
}

class AdapterOfEveryFamily : public golden::AdapterFixture, public testing::WithParamInterface<const char*> {};

TEST_P(AdapterOfEveryFamily, EqualsMergedWeightsInEveryMatrix) {
  use(GetParam());
  if (golden_ == nullptr) GTEST_SKIP() << "no golden file";
  const Lora adapter = lora(4, 8.0f, 1);
  F32Model merged = *base_;
  adapter.merge_into(merged, 0.5);
  const auto merged_model = load(merged.write(file("merged.gguf")));
  const auto adapted_model = load(base_path_, {adapter.write(file("lora.gguf"))});
  const AdapterInfo& info = adapted_model->adapters().at(0);
  EXPECT_EQ(info.rank, 4);
  EXPECT_EQ(info.n_tensors, n_evaluated(adaptable(*base_), adapted_model->info().n_layer));

  const auto reference = golden::make_reference_device();
  const std::vector<Rows> exact = all_cases(*merged_model, *reference, small_context());
  EXPECT_LE(distance(pair(*adapted_model, *reference, small_context({0.5f})), exact[2]),
            kExact * golden::size_of(exact[2]));
  const double merged_native = distance(all_cases(*merged_model, *device_, small_context()), exact);
  EXPECT_LT(distance(all_cases(*adapted_model, *device_, small_context({0.5f})), exact),
            std::max(kNative, merged_native));
  EXPECT_GT(distance(pair(*adapted_model, *device_, small_context({0.0f})), exact[2]), kChange);
}

INSTANTIATE_TEST_SUITE_P(Models, AdapterOfEveryFamily,
                         testing::Values("llama", "mixtral", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen3moe-q8_0",
                                         "qwen3next", "qwen35", "qwen35moe", "gemma2", "gemma3", "glm4", "glm4moe",
                                         "gpt-oss", "minimax-m2", "deepseek2-lite", "deepseek2-v3",
                                         "deepseek2-v3-split"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

using Tokens = std::vector<Token>;
using Scales = std::vector<float>;

class AdapterTest : public golden::AdapterFixture {
 protected:
  void SetUp() override {
    use("llama");
    ASSERT_NE(golden_, nullptr);
  }
  /// The rows of one step in which each sequence has scales of its own, then of a second step with one token each.
  static std::vector<std::vector<float>> run_together(Context& context, std::span<const Tokens> prompts,
                                                      std::span<const Scales> scales) {
    std::vector<StepSequence> step;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      step.push_back({context.create_sequence(), prompts[i], Outputs::last, nullptr, scales[i]});
    std::vector<std::vector<float>> rows;
    const auto collect = [&](const StepResult& result) {
      for (const StepResult::Sequence& s : result.sequences) rows.emplace_back(s.logits.begin(), s.logits.end());
    };
    collect(context.run({step}));
    const Token next = 7;
    for (StepSequence& s : step) s.tokens = {&next, 1};
    collect(context.run({step}));
    for (const StepSequence& s : step) context.remove_sequence(s.seq);
    return rows;
  }
  static std::vector<std::vector<float>> run_alone(Context& context, const Tokens& prompt, const Scales& scales) {
    return run_together(context, {&prompt, 1}, {&scales, 1});
  }
  static void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << "logit " << i;
  }

  const std::vector<Tokens> prompts_{{1, 5, 9, 13, 17}, {1, 5, 9}, {1, 20, 21, 22}, {1, 5, 9, 13, 17}};
};

TEST_F(AdapterTest, SeveralAtOnceEqualTheirSum) {
  const Lora first = lora(4, 8.0f, 2);
  // Of another rank, for some tensors only, and without a factor of its own.
  const Lora second(*base_, {"blk.0.attn_q.weight", "blk.1.ffn_down.weight", "output.weight"}, {3, 0.0f, 3});
  F32Model merged = *base_;
  first.merge_into(merged, 0.25);
  second.merge_into(merged, -0.5);
  const auto merged_model = load(merged.write(file("merged.gguf")));
  const auto adapted = load(base_path_, {first.write(file("1.gguf")), second.write(file("2.gguf"))});
  const auto reference = golden::make_reference_device();
  const Rows exact = pair(*merged_model, *reference, small_context());
  EXPECT_LE(distance(pair(*adapted, *reference, small_context({0.25f, -0.5f})), exact),
            kExact * golden::size_of(exact));
  EXPECT_LT(distance(pair(*adapted, *device_, small_context({0.25f, -0.5f})), exact), kNative);
  EXPECT_GT(distance(pair(*adapted, *device_, small_context({0.25f, 0.0f})), exact), kChange);
  EXPECT_GT(distance(pair(*adapted, *device_, small_context({0.0f, -0.5f})), exact), kChange);
}

TEST_F(AdapterTest, FilesOfHalfPrecisionRoundWhatTheyAreMultipliedWith) {
  const Lora adapter = lora(4, 8.0f, 2);
  F32Model merged = *base_;
  adapter.merge_into(merged, 0.5);
  const auto merged_model = load(merged.write(file("merged.gguf")));
  const auto adapted = load(base_path_, {adapter.write(file("half.gguf"), DType::f16)});
  const auto reference = golden::make_reference_device();
  const Rows exact = pair(*merged_model, *reference, small_context());
  // Inputs of A and of B are rounded by up to 2^-12 of their size; so many independent errors add up by their root.
  const double n_roundings = 2.0 * adapted->adapters().at(0).n_tensors;
  const double bound = std::sqrt(n_roundings) * 0x1p-12 * golden::size_of(exact);
  EXPECT_LT(distance(pair(*adapted, *reference, small_context({0.5f})), exact), bound);
  EXPECT_LT(distance(pair(*adapted, *device_, small_context({0.5f})), exact), bound);
}

TEST_F(AdapterTest, SequencesOfOneStepHaveTheirOwnScales) {
  const auto model = load(base_path_, {lora(4, 8.0f, 4).write(file("1.gguf")), lora(2, 4.0f, 5).write(file("2.gguf"))});
  const std::vector<Scales> scales{{0.7f, 0.0f}, {0.0f, -1.2f}, {0.3f, 0.5f}, {0.0f, 0.0f}};
  Context context(*model, *device_, small_context());
  const auto together = run_together(context, prompts_, scales);
  ASSERT_EQ(together.size(), 8u);
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    const auto alone = run_alone(context, prompts_[i], scales[i]);
    expect_near(together[i], alone[0]);
    expect_near(together[4 + i], alone[1]);
  }
  // One graph serves every mix of the same adapters.
  const std::uint64_t builds = context.stats().graph_builds;
  const std::vector<Scales> others{{0.0f, 0.4f}, {0.1f, 0.0f}, {0.0f, 0.0f}, {2.0f, 1.0f}};
  (void)run_together(context, prompts_, others);
  EXPECT_EQ(context.stats().graph_builds, builds);
}

TEST_F(AdapterTest, DecodingWithAdaptersBuildsNoGraphAndAllocatesNothing) {
  const auto model = load(base_path_, {lora(4, 8.0f, 4).write(file("1.gguf")), lora(2, 4.0f, 5).write(file("2.gguf"))});
  Context context(*model, *device_, small_context());
  SamplingParams sampling;
  sampling.seed = 1;
  Sampler first(sampling, model->vocab(), 512), second(sampling, model->vocab(), 512);
  Scales scales[] = {{0.7f, 0.0f}, {0.0f, -0.3f}};
  Token tokens[] = {5, 6};
  StepSequence step[] = {{context.create_sequence(), {&tokens[0], 1}, Outputs::last, &first, scales[0]},
                         {context.create_sequence(), {&tokens[1], 1}, Outputs::last, &second, scales[1]}};
  const auto decode = [&] {
    const StepResult& result = context.run({step});
    for (std::size_t i = 0; i < 2; ++i) {
      tokens[i] = result.sequences[i].sampled->token;
      step[i].sampler->accept(tokens[i]);
    }
  };
  for (int i = 0; i < 4; ++i) decode();
  const std::uint64_t builds = context.stats().graph_builds;
  const std::size_t before = allocation_count();
  for (int i = 0; i < 100; ++i) {
    std::swap(scales[0][0], scales[1][0]);  // other scales are no other graph
    decode();
  }
  EXPECT_EQ(allocation_count() - before, 0u);
  EXPECT_EQ(context.stats().graph_builds, builds);
}

TEST_F(AdapterTest, ManySetsOfAdaptersShareAFewPrograms) {
  constexpr std::size_t kAdapters = 5;
  std::vector<std::string> files;
  for (std::size_t i = 0; i < kAdapters; ++i)
    files.push_back(lora(2, 4.0f, 20 + static_cast<unsigned>(i)).write(file(("set" + std::to_string(i)).c_str())));
  const auto model = load(base_path_, files);
  Context context(*model, *device_, small_context());
  const auto scales_of = [](unsigned set) {
    Scales scales(kAdapters, 0.0f);
    for (std::size_t i = 0; i < kAdapters; ++i)
      if ((set >> i & 1u) != 0) scales[i] = 0.25f;
    return scales;
  };
  (void)run_alone(context, prompts_[0], scales_of(0));
  const std::uint64_t of_one_set = context.stats().graph_builds;
  for (unsigned set = 1; set < 1u << kAdapters; ++set) (void)run_alone(context, prompts_[0], scales_of(set));
  EXPECT_LE(context.stats().graph_builds, 10 * of_one_set);
  // A set that has programs of its own and one that shares them.
  for (const unsigned set : {1u, 0b10110u}) {
    Context fresh(*model, *device_, small_context());
    const auto a = run_alone(context, prompts_[0], scales_of(set)), b = run_alone(fresh, prompts_[0], scales_of(set));
    expect_near(a[0], b[0]);
    expect_near(a[1], b[1]);
  }
}

TEST_F(AdapterTest, WhatNoRowUsesCostsNothing) {
  const auto plain = load(base_path_);
  const auto adapted = load(base_path_, {lora(4, 8.0f, 6).write(file("1.gguf"))});
  Context without(*plain, *device_, small_context());
  Context with(*adapted, *device_, small_context());
  EXPECT_EQ(run_alone(with, prompts_[0], {0.0f}), run_alone(without, prompts_[0], {}));
  EXPECT_EQ(with.stats().graph_builds, without.stats().graph_builds);
  EXPECT_EQ(with.stats().weight_bytes, without.stats().weight_bytes);
  (void)run_alone(with, prompts_[0], {1.0f});
  EXPECT_GT(with.stats().weight_bytes, without.stats().weight_bytes);
}

TEST_F(AdapterTest, MicroBatchesKeepTheScalesOfTheirRows) {
  const auto model = load(base_path_, {lora(4, 8.0f, 7).write(file("1.gguf"))});
  const std::vector<Scales> scales{{0.5f}, {0.0f}, {-0.25f}, {1.0f}};
  Context whole(*model, *device_, small_context());
  const auto expected = run_together(whole, prompts_, scales);
  for (const int n_ubatch : {1, 3, 8}) {
    ContextParams params = small_context();
    params.n_ubatch = n_ubatch;
    Context context(*model, *device_, params);
    const auto rows = run_together(context, prompts_, scales);
    ASSERT_EQ(rows.size(), expected.size());
    for (std::size_t i = 0; i < rows.size(); ++i) expect_near(rows[i], expected[i]);
  }
}

TEST_F(AdapterTest, TensorsThatTheyChangeAreNotMerged) {
  ModelParams params;
  params.path = base_path_;
  params.adapters = {lora(4, 8.0f, 7).write(file("1.gguf"))};
  const Rows apart = pair(*load(params), *device_, small_context({0.5f}));
  params.merge_qkv = params.merge_up_gate = true;
  EXPECT_EQ(pair(*load(params), *device_, small_context({0.5f})), apart);
}

TEST_F(AdapterTest, QuantisedModelsTakeAdaptersToo) {
  const auto golden = golden::load("llama-q4_k");
  ASSERT_NE(golden, nullptr);
  const F32Model values(golden->path);
  const Lora adapter(values, adaptable(values), {4, 8.0f, 7});
  const auto model = load(golden->path, {adapter.write(file("1.gguf"), DType::f16)});
  Context context(*model, *device_, small_context());
  const auto mixed = run_together(context, std::span(prompts_).first(2), std::vector<Scales>{{0.0f}, {1.0f}});
  const auto none = run_together(context, std::span(prompts_).first(2), std::vector<Scales>{{0.0f}, {0.0f}});
  expect_near(mixed[0], none[0]);  // a row without adapter, beside one that has it
  EXPECT_GT(distance(Rows{mixed[1]}, Rows{none[1]}), kChange);
}

TEST_F(AdapterTest, AdaptersLieOnTheDevicesOfTheirTensors) {
  const golden::SimulatedMachine machine({.n_cards = 1});
  ModelParams params;
  params.path = base_path_;
  params.adapters = {lora(4, 8.0f, 8).write(file("1.gguf"))};
  const auto on_cpu = Model::load(params, machine.cpu(), {});
  const auto expected = all_cases(*on_cpu, machine.cpu(), small_context({0.5f}));
  Plan plan = golden::SimulatedMachine::all_on(1, on_cpu->info().n_layer);
  golden::SimulatedMachine::put(plan, "blk.1.ffn_down.weight", 0);
  const auto model = Model::load(params, machine.devices(), plan, {});
  for (const ggml::Weight& weight : model->weights().tensors) {
    if (weight.name.find("lora") == std::string::npos) continue;
    const bool on_host = weight.name.starts_with("blk.1.ffn_down.");
    EXPECT_EQ(weight.placements.back().device.v, on_host ? 0 : 1) << weight.name;
  }
  Context context(*model, machine.devices(), plan, small_context({0.5f}));
  EXPECT_LT(distance(all_cases(context), expected), kNative);
}

}  // namespace
}  // namespace llama
