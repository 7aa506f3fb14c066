#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cpu/ops/expert_groups.h"
#include "cpu/test_bed.h"

namespace ggml::cpu::test {
namespace {

// The hidden values are rounded to 8 bits. Those that lie within f32's error of a rounding tie may fall the other way
// than in the evaluator, which moves a row by about one step of one value: seldom, and by a known amount.
constexpr Tolerance kTwoProducts{.row = 3e-5, .outlier_row = 5e-3, .outlier_share = 0.1};
struct FfnCase {
  const char* name;
  Activation act;
  bool gated, fused;
  float limit;
  DType up, down;
  bool bias;
};

const FfnCase kFfnCases[] = {
    {"silu_q4_k_q6_k", Activation::silu, true, false, 0.0f, DType::q4_k, DType::q6_k, false},
    {"gelu_q8_0", Activation::gelu, true, false, 0.0f, DType::q8_0, DType::q8_0, false},
    {"silu_f32", Activation::silu, true, false, 0.0f, DType::f32, DType::f32, false},
    {"silu_fused_q4_1", Activation::silu, true, true, 0.0f, DType::q4_1, DType::q5_0, false},
    {"relu2_plain_f16", Activation::relu2, false, false, 0.0f, DType::f16, DType::bf16, false},
    {"oai_bias", Activation::swiglu_oai, true, false, 0.0f, DType::q8_0, DType::q5_1, true},
    {"limited", Activation::silu, true, true, 0.8f, DType::q4_0, DType::q4_0, true},
};

class FfnForm : public testing::TestWithParam<FfnCase> {};

TEST_P(FfnForm, MatchesItsDecomposition) {
  const FfnCase& form = GetParam();
  constexpr std::int64_t kEmbd = 256, kWidth = 768;
  for (const int rows : {1, 2, 7, 15, 16, 33, 100}) {
    const int bucket = rows == 7 ? 8 : rows;
    TestBed bed(bucket, 1, static_cast<std::uint32_t>(rows));
    const TensorId x = bed.random_input("x", Shape(kEmbd, bucket), Rows::tokens);
    std::vector<Slot> slots;
    if (form.fused) {
      slots.push_back(bed.slot(form.up, Shape(kEmbd, 2 * kWidth)));
    } else {
      for (int i = 0; i < (form.gated ? 2 : 1); ++i) slots.push_back(bed.slot(form.up, Shape(kEmbd, kWidth)));
    }
    slots.push_back(bed.slot(form.down, Shape(kWidth, kEmbd)));
    for (Slot& slot : slots) {
      if (form.bias) slot.bias = bed.weight_id(DType::f32, Shape(bed.graph().graph().at(slot.weight).shape[1]), 0.3f);
    }
    const FfnParams p{.act = form.act, .gated = form.gated, .fused_gate_up = form.fused, .limit = form.limit};
    bed.output(bed.graph().ffn(x, slots, p, "y"), "y");
    const StepCounts counts{rows, 0, 1};
    const Outcome want = bed.run_reference(counts);
    for (const std::string& isa : isa_names()) {
      const Outcome got = bed.run_cpu(counts, {.isa = isa, .n_threads = 1 + rows % 4});
      expect_close(got.values.at("y"), want.values.at("y"), kEmbd, kEmbd * rows, kTwoProducts,
                   isa + " " + std::to_string(rows) + " rows");
    }
    const Outcome got = bed.run_cpu(counts, {.n_threads = 2, .decompose_all = true});
    expect_close(got.values.at("y"), want.values.at("y"), kEmbd, kEmbd * rows, kTwoProducts, "primitives");
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, FfnForm, testing::ValuesIn(kFfnCases), [](const auto& row) { return row.param.name; });

// 160 = five blocks of 32: the last piece of 256 columns is not full.
TEST(Ffn, RoundsAPieceThatIsNotFull) {
  for (const int rows : {3, 40}) {
    TestBed bed(rows, 1, 1);
    const TensorId x = bed.random_input("x", Shape(64, rows), Rows::tokens);
    const std::vector<Slot> slots{bed.slot(DType::q8_0, Shape(64, 416)), bed.slot(DType::q8_0, Shape(64, 416)),
                                  bed.slot(DType::q8_0, Shape(416, 64))};
    bed.output(bed.graph().ffn(x, slots, {}, "y"), "y");
    const StepCounts counts{rows, 0, 1};
    expect_close(bed.run_cpu(counts, {.n_threads = 3}).values.at("y"), bed.run_reference(counts).values.at("y"), 64,
                 64 * rows, kTwoProducts, "narrow");
  }
}

TEST(ExpertGroups, OrderPairsByExpertAndSkipOthers) {
  const std::vector<std::int32_t> ids{4, 1, -1, 4, 1, 0, 7, 4};  // 4 tokens, 2 used
  std::vector<std::int32_t> memory(static_cast<std::size_t>(ExpertGroups::words(8, 8)));
  ExpertGroups groups(memory.data(), 8, 8);
  groups.build({ids.data(), 4, 2, 1, 7});
  ASSERT_EQ(groups.n_groups(), 2);
  EXPECT_EQ(groups.n_positions(), 5);
  EXPECT_EQ(groups.expert(0), 1);
  EXPECT_EQ(groups.expert(1), 4);
  EXPECT_EQ(groups.size(0), 2);
  EXPECT_EQ(groups.size(1), 3);
  EXPECT_EQ(std::vector<std::int32_t>(groups.tokens(0), groups.tokens(0) + 5),
            (std::vector<std::int32_t>{0, 2, 0, 1, 3}));
  EXPECT_EQ(groups.position(2), -1);
  EXPECT_EQ(groups.position(5), -1);
  EXPECT_EQ(groups.position(6), -1);
  EXPECT_EQ(groups.position(7), 4);
}

struct MoeCase {
  const char* name;
  Activation act;
  bool gated, fused, bias;
  DType up, down;
  int expert_begin, expert_end;
};

const MoeCase kMoeCases[] = {
    {"silu_q4_k_q6_k", Activation::silu, true, false, false, DType::q4_k, DType::q6_k, 0, 0},
    {"subset_q8_0", Activation::silu, true, false, false, DType::q8_0, DType::q4_0, 3, 9},
    {"fused_f16", Activation::gelu, true, true, false, DType::f16, DType::f16, 0, 0},
    {"oai_bias", Activation::swiglu_oai, true, true, true, DType::q8_0, DType::q8_0, 0, 0},
    {"plain_relu2", Activation::relu2, false, false, true, DType::q5_k, DType::q5_k, 0, 0},
};

class MoeForm : public testing::TestWithParam<MoeCase> {};

/// Distinct experts per token, with some pairs skipped.
std::vector<std::int32_t> random_ids(TestBed& bed, int n_expert, int n_used, int tokens) {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> all(static_cast<std::size_t>(n_expert));
  std::iota(all.begin(), all.end(), 0);
  for (int t = 0; t < tokens; ++t) {
    std::shuffle(all.begin(), all.end(), bed.random());
    for (int j = 0; j < n_used; ++j) ids.push_back(bed.random()() % 8 == 0 ? -1 : all[static_cast<std::size_t>(j)]);
  }
  return ids;
}

TEST_P(MoeForm, MatchesItsDecomposition) {
  const MoeCase& form = GetParam();
  constexpr std::int64_t kEmbd = 256, kWidth = 512;
  constexpr int kExperts = 12, kUsed = 3;
  for (const int rows : {1, 2, 5, 16, 33, 90}) {
    const int bucket = rows == 5 ? 8 : rows;
    TestBed bed(bucket, 1, static_cast<std::uint32_t>(rows));
    const TensorId x = bed.random_input("x", Shape(kEmbd, bucket), Rows::tokens);
    const TensorId ids = bed.input("ids", Shape(kUsed, bucket), Rows::tokens, random_ids(bed, kExperts, kUsed, bucket));
    const TensorId weights = bed.random_input("weights", Shape(kUsed, bucket), Rows::tokens);
    std::vector<Slot> slots;
    if (form.fused) {
      slots.push_back(bed.slot(form.up, Shape(kEmbd, 2 * kWidth, kExperts)));
    } else {
      for (int i = 0; i < (form.gated ? 2 : 1); ++i) slots.push_back(bed.slot(form.up, Shape(kEmbd, kWidth, kExperts)));
    }
    slots.push_back(bed.slot(form.down, Shape(kWidth, kEmbd, kExperts)));
    for (Slot& slot : slots) {
      if (!form.bias) continue;
      slot.bias = bed.weight_id(DType::f32, Shape(bed.graph().graph().at(slot.weight).shape[1], kExperts), 0.3f);
      slot.scale = bed.weight_id(DType::f32, Shape(kExperts), 1.0f);
    }
    const MoeFfnParams p{.n_expert = kExperts,
                         .n_used = kUsed,
                         .act = form.act,
                         .gated = form.gated,
                         .fused_gate_up = form.fused,
                         .expert_begin = form.expert_begin,
                         .expert_end = form.expert_end};
    bed.output(bed.graph().moe_ffn(x, {ids, weights}, slots, p, "y"), "y");
    const StepCounts counts{rows, 0, 1};
    const Outcome want = bed.run_reference(counts);
    for (const std::string& isa : isa_names()) {
      const Outcome got = bed.run_cpu(counts, {.isa = isa, .n_threads = 1 + rows % 4});
      expect_close(got.values.at("y"), want.values.at("y"), kEmbd, kEmbd * rows, kTwoProducts,
                   isa + " " + std::to_string(rows) + " rows");
    }
    const Outcome got = bed.run_cpu(counts, {.n_threads = 2, .decompose_all = true});
    expect_close(got.values.at("y"), want.values.at("y"), kEmbd, kEmbd * rows, kTwoProducts, "primitives");
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, MoeForm, testing::ValuesIn(kMoeCases), [](const auto& row) { return row.param.name; });

TEST(MoeFfn, GivesTheSameBytesForAnyNumberOfThreads) {
  constexpr int kExperts = 8, kUsed = 2, kRows = 40;
  TestBed bed(kRows, 1, 9);
  const TensorId x = bed.random_input("x", Shape(256, kRows), Rows::tokens);
  const TensorId ids = bed.input("ids", Shape(kUsed, kRows), Rows::tokens, random_ids(bed, kExperts, kUsed, kRows));
  const TensorId weights = bed.random_input("weights", Shape(kUsed, kRows), Rows::tokens);
  const std::vector<Slot> slots{bed.slot(DType::q4_k, Shape(256, 512, kExperts)),
                                bed.slot(DType::q4_k, Shape(256, 512, kExperts)),
                                bed.slot(DType::q6_k, Shape(512, 256, kExperts))};
  bed.output(bed.graph().moe_ffn(x, {ids, weights}, slots, {.n_expert = kExperts, .n_used = kUsed}, "y"), "y");
  for (const int rows : {1, 4, kRows}) {
    const Outcome one = bed.run_cpu({rows, 0, 1}, {.n_threads = 1});
    for (const int threads : {2, 4}) {
      const Outcome many = bed.run_cpu({rows, 0, 1}, {.n_threads = threads});
      EXPECT_TRUE(
          std::equal(one.values.at("y").begin(), one.values.at("y").begin() + rows * 256L, many.values.at("y").begin()))
          << rows << " rows, " << threads << " threads";
    }
  }
}

// Two devices may each hold a part of the experts: the parts' results add up to the whole.
TEST(MoeFfn, PartsOfTheExpertsAddUp) {
  constexpr int kExperts = 8, kUsed = 4, kRows = 6;
  TestBed bed(kRows, 1, 2);
  const TensorId x = bed.random_input("x", Shape(64, kRows), Rows::tokens);
  const TensorId ids = bed.input("ids", Shape(kUsed, kRows), Rows::tokens, random_ids(bed, kExperts, kUsed, kRows));
  const TensorId weights = bed.random_input("weights", Shape(kUsed, kRows), Rows::tokens);
  const std::vector<Slot> slots{bed.slot(DType::q8_0, Shape(64, 96, kExperts)),
                                bed.slot(DType::q8_0, Shape(64, 96, kExperts)),
                                bed.slot(DType::q8_0, Shape(96, 64, kExperts))};
  MoeFfnParams p{.n_expert = kExperts, .n_used = kUsed};
  const GraphBuilder::Route route{ids, weights};
  bed.output(bed.graph().moe_ffn(x, route, slots, p, "whole"), "whole");
  p.expert_end = 3;
  const TensorId low = bed.graph().moe_ffn(x, route, slots, p, "low");
  p.expert_begin = 3;
  p.expert_end = 0;
  const TensorId high = bed.graph().moe_ffn(x, route, slots, p, "high");
  bed.output(bed.graph().add(low, high, "sum"), "sum");
  const Outcome got = bed.run_cpu({kRows, 0, 1}, {.n_threads = 2});
  expect_close(got.values.at("sum"), got.values.at("whole"), 64, 64 * kRows, {.row = 1e-5}, "parts");
}

// What each expert gave, for weighting and adding elsewhere: as the decomposition gives it, zeros for skipped ones.
TEST(MoeFfn, GivesWhatEachExpertGaveWhereItIsNotToSumThem) {
  constexpr int kExperts = 8, kUsed = 3, kRows = 40;
  TestBed bed(kRows, 1, 21);
  const TensorId x = bed.random_input("x", Shape(64, kRows), Rows::tokens);
  const std::vector<std::int32_t> chosen = random_ids(bed, kExperts, kUsed, kRows);
  const TensorId ids = bed.input("ids", Shape(kUsed, kRows), Rows::tokens, chosen);
  std::vector<Slot> slots{bed.slot(DType::q8_0, Shape(64, 96, kExperts)),
                          bed.slot(DType::q8_0, Shape(64, 96, kExperts)),
                          bed.slot(DType::q8_0, Shape(96, 64, kExperts))};
  const MoeFfnParams p{.n_expert = kExperts, .n_used = kUsed, .summed = false};
  const TensorId sources[] = {x, ids};
  bed.output(bed.graph().add(Op::moe_ffn, p, sources, slots, "each").front(), "each");
  for (const int rows : {1, kRows}) {
    const StepCounts counts{rows, 0, 1};
    const Outcome want = bed.run_reference(counts), got = bed.run_cpu(counts, {.n_threads = 3});
    expect_close(got.values.at("each"), want.values.at("each"), 64, std::int64_t{64} * kUsed * rows, kTwoProducts,
                 std::to_string(rows) + " rows");
    const std::vector<float>& each = got.values.at("each");
    for (int pair = 0; pair < rows * kUsed; ++pair) {
      if (chosen[static_cast<std::size_t>(pair)] >= 0) continue;
      const auto begin = each.begin() + std::ptrdiff_t{64} * pair;
      EXPECT_EQ(std::count(begin, begin + 64, 0.0f), 64) << "pair " << pair;
    }
  }
}

struct RouteCase {
  const char* name;
  Gating gating;
  bool bias, normalise;
  float scale;
  int n_groups, n_groups_used;
};

class RouteForm : public testing::TestWithParam<RouteCase> {};

TEST_P(RouteForm, ChoosesTheSameExpertsAsItsDecomposition) {
  const RouteCase& form = GetParam();
  constexpr int kExperts = 24, kUsed = 5;
  for (const int rows : {1, 3, 20}) {
    TestBed bed(rows + 1, 1, static_cast<std::uint32_t>(rows));
    const TensorId x = bed.random_input("x", Shape(128, rows + 1), Rows::tokens, 2.0f);
    std::vector<Slot> slots{bed.slot(DType::f32, Shape(128, kExperts))};
    if (form.bias) {
      Slot bias;
      bias.weight = bed.weight_id(DType::f32, Shape(kExperts), 0.2f);
      slots.push_back(bias);
    }
    const MoeRouteParams p{.n_expert = kExperts,
                           .n_used = kUsed,
                           .gating = form.gating,
                           .has_selection_bias = form.bias,
                           .normalise = form.normalise,
                           .scale = form.scale,
                           .n_groups = form.n_groups,
                           .n_groups_used = form.n_groups_used};
    const GraphBuilder::Route route = bed.graph().moe_route(x, slots, p, "route");
    bed.output(route.ids, "ids");
    bed.output(route.weights, "weights");
    const StepCounts counts{rows, 0, 1};
    const Outcome want = bed.run_reference(counts);
    for (const bool primitives : {false, true}) {
      const Outcome got = bed.run_cpu(counts, {.n_threads = 3, .decompose_all = primitives});
      EXPECT_EQ(got.words.at("ids"), want.words.at("ids")) << form.name;
      expect_close(got.values.at("weights"), want.values.at("weights"), kUsed, kUsed * rows, {.row = 1e-5}, form.name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, RouteForm,
                         testing::Values(RouteCase{"softmax", Gating::softmax, false, false, 1.0f, 1, 1},
                                         RouteCase{"softmax_normalised", Gating::softmax, false, true, 0.0f, 1, 1},
                                         RouteCase{"sigmoid_groups", Gating::sigmoid, true, true, 2.5f, 4, 2},
                                         RouteCase{"selected", Gating::softmax_selected, false, false, 1.0f, 1, 1},
                                         RouteCase{"sqrt_softplus", Gating::sqrt_softplus, true, true, 1.5f, 1, 1}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ggml::cpu::test
