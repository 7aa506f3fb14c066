#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cpu/ops/top_k.h"
#include "cpu/test_bed.h"
#include "ggml/sample_row.h"

namespace ggml::cpu::test {
namespace {

constexpr int kThreads = 3;

void compare(TestBed& bed, const StepCounts& counts, std::int64_t width, std::int64_t live, double tolerance,
             const std::string& what) {
  const Outcome want = bed.run_reference(counts);
  for (const std::string& isa : isa_names()) {
    for (const bool primitives : {false, true}) {
      const Outcome got = bed.run_cpu(counts, {.isa = isa, .n_threads = kThreads, .decompose_all = primitives});
      for (const auto& [name, values] : want.values) {
        std::string label = what;
        label.append(" ").append(name).append(" ").append(isa).append(primitives ? " primitives" : "");
        expect_close(got.values.at(name), values, width, live, {.row = tolerance}, label);
      }
      EXPECT_EQ(got.words, want.words) << what;
    }
  }
}

TEST(Embed, DecodesRowsOfEveryTypeAndZerosUnknownIds) {
  for (const DType type : {DType::f32, DType::f16, DType::q4_0, DType::q6_k}) {
    TestBed bed(8, 1, 4);
    const TensorId ids = bed.input("ids", Shape(8), Rows::tokens, std::vector<std::int32_t>{3, 19, 0, -1, 20, 7, 7, 1});
    Slot table;
    table.weight = bed.weight_id(type, Shape(256, 20), 1.0f);
    bed.output(bed.graph().embed(ids, table, {.scale = 1.5f}, "y"), "y");
    compare(bed, {6, 0, 1}, 256, 6 * 256, 1e-6, "embed");
  }
}

TEST(Norm, MatchesItsDecompositionInEveryKind) {
  for (const NormKind kind : {NormKind::rms, NormKind::layer, NormKind::l2}) {
    for (const std::int64_t n : {1, 7, 64, 300}) {
      for (const bool residual : {false, true}) {
        TestBed bed(5, 1, static_cast<std::uint32_t>(n));
        const TensorId x = bed.random_input("x", Shape(n, 5), Rows::tokens);
        Slot weight;
        weight.weight = bed.weight_id(DType::f32, Shape(n), 1.0f);
        weight.bias = bed.weight_id(DType::f32, Shape(n), 1.0f);
        const NormParams p{.kind = kind, .eps = 1e-3f};
        if (residual) {
          const TensorId r = bed.random_input("r", Shape(n, 5), Rows::tokens);
          const GraphBuilder::NormSum both = bed.graph().add_norm(x, r, weight, p, "y");
          bed.output(both.normed, "y");
          bed.output(both.sum, "sum");
        } else {
          bed.output(bed.graph().norm(x, weight, p, "y"), "y");
        }
        compare(bed, {4, 0, 1}, n, 4 * n, 2e-5, "norm");
      }
    }
  }
}

TEST(Norm, HasAWeightOfItsOwnForEachHead) {
  TestBed bed(5, 1, 4);
  const TensorId x = bed.random_input("x", Shape(24, 3, 5), Rows::tokens);
  Slot weight;
  weight.weight = bed.weight_id(DType::f32, Shape(24, 3), 1.0f);
  bed.output(bed.graph().norm(x, weight, {}, "y"), "y");
  compare(bed, {4, 0, 1}, 24, 4 * 72, 1e-5, "head norm");
}

TEST(Rope, MatchesItsDecompositionInEveryLayoutAndScaling) {
  for (const RopeLayout layout : {RopeLayout::none, RopeLayout::norm, RopeLayout::neox}) {
    for (const int variant : {0, 1, 2}) {
      TestBed bed(9, 1, 4);
      RopeParams p{.layout = layout, .n_rot = 24};
      if (variant == 1) {
        p.freq_scale = 0.25f;
        p.ext_factor = 1.0f;
        p.n_ctx_orig = 4096;
        p.attn_factor = 1.1f;
      }
      p.has_factors = variant == 2;
      const std::vector<std::int32_t> positions{0, 1, 5, 100, 4095, 30000, 131071, 7, 8};
      const TensorId pos = bed.input("pos", Shape(9), Rows::tokens, positions);
      TensorId factors;
      if (p.has_factors) factors = bed.weight_id(DType::f32, Shape(12), 3.0f);
      GraphBuilder::Qkv qkv;
      qkv.q = bed.random_input("q", Shape(32, 4, 9), Rows::tokens);
      qkv.k = bed.random_input("k", Shape(32, 4, 9), Rows::tokens);
      qkv.v = qkv.k;
      const GraphBuilder::Qkv rotated = bed.graph().rope_qk(qkv, pos, factors, p, "rope");
      bed.output(rotated.q, "q");
      bed.output(rotated.k, "k");
      compare(bed, {8, 0, 1}, 32, 8 * 128, 1e-5, "rope");
    }
  }
}

TEST(Elementwise, AddAndMulRepeatMissingAxes) {
  const std::vector<std::pair<Shape, Shape>> pairs{
      {Shape(40, 3, 6), Shape(40, 3, 6)}, {Shape(40, 3, 6), Shape(40)},      {Shape(40, 3, 6), Shape(40, 3)},
      {Shape(40, 3, 6), Shape(1)},        {Shape(40, 3, 6), Shape(1, 3, 6)}, {Shape(40, 1, 6), Shape(1, 3, 6)}};
  for (const auto& [a, b] : pairs) {
    for (const bool is_add : {true, false}) {
      TestBed bed(6, 1, 4);
      const TensorId x = bed.random_input("a", a, Rows::tokens);
      const TensorId y = b[2] == 6 ? bed.random_input("b", b, Rows::tokens) : bed.weight_id(DType::f32, b, 1.0f);
      bed.output(is_add ? bed.graph().add(x, y, "y") : bed.graph().mul(x, y, "y"), "y");
      compare(bed, {5, 0, 1}, 40, 5 * 120, 1e-6, a.text() + " and " + b.text());
    }
  }
}

TEST(Elementwise, ComputesEveryUnaryKindAndActivation) {
  std::vector<UnaryParams> all{{UnaryKind::scale, Activation::none, -0.5f},
                               {UnaryKind::softcap, Activation::none, 3.0f},
                               {UnaryKind::clamp, Activation::none, 0.7f}};
  for (const Activation act : {Activation::none, Activation::silu, Activation::gelu, Activation::relu2,
                               Activation::sigmoid, Activation::softplus}) {
    all.push_back({UnaryKind::activation, act, 1.0f});
  }
  for (const UnaryParams& p : all) {
    TestBed bed(6, 1, 4);
    const TensorId x = bed.random_input("x", Shape(1000, 6), Rows::tokens, 4.0f);
    bed.output(bed.graph().unary(x, p, "y"), "y");
    compare(bed, {5, 0, 1}, 1000, 5000, 1e-5, "unary");
  }
}

TEST(Elementwise, RoundsActivationsToEveryForm) {
  for (const ActType act : {ActType::f32, ActType::f16, ActType::bf16, ActType::q8_0, ActType::q8_1, ActType::q8_k}) {
    TestBed bed(6, 1, 4);
    const TensorId x = bed.random_input("x", Shape(512, 6), Rows::tokens, 4.0f);
    const TensorId src[] = {x};
    bed.output(bed.graph().add(Op::quantise_act, QuantiseActParams{act}, src, {}, "y")[0], "y");
    compare(bed, {5, 0, 1}, 512, 5 * 512, 1e-6, "quantise_act");
  }
}

TEST(Rows, SelectsTheOutputRows) {
  TestBed bed(6, 3, 4);
  const TensorId x = bed.random_input("x", Shape(33, 6), Rows::tokens);
  const TensorId ids = bed.input("ids", Shape(3), Rows::outputs, std::vector<std::int32_t>{4, 1, 0});
  const TensorId rows = bed.graph().select_rows(x, ids, "rows");
  bed.output(bed.graph().unary(rows, {UnaryKind::scale, Activation::none, 2.0f}, "y"), "y");
  compare(bed, {6, 2, 1}, 33, 66, 1e-7, "select_rows");
}

TEST(TopK, OrdersByFallingScoreWithTiesToTheLowerId) {
  const std::vector<float> scores{1.0f, 5.0f, 5.0f, std::nanf(""), 7.0f, -INFINITY, 5.0f};
  std::vector<float> masked(8), best(6);
  std::vector<std::int32_t> ids(6);
  top_k({.k = 4}, {scores.data(), 7, masked.data(), best.data(), ids.data()});
  EXPECT_EQ(std::vector<std::int32_t>(ids.begin(), ids.begin() + 4), (std::vector<std::int32_t>{4, 1, 2, 6}));
  top_k({.k = 6}, {scores.data(), 7, masked.data(), best.data(), ids.data()});
  EXPECT_EQ(ids, (std::vector<std::int32_t>{4, 1, 2, 6, 0, 3})) << "NaN counts as minus infinity";
}

TEST(Sample, RunsEachRowsChain) {
  constexpr int kVocab = 500, kRows = 5;
  TestBed bed(1, kRows, 4);
  std::vector<SampleRow> rows(kRows);
  for (int i = 0; i < kRows; ++i) {
    SampleRow& row = rows[static_cast<std::size_t>(i)];
    row.stages[0] = SampleStage::top_k;
    row.stages[1] = SampleStage::top_p;
    row.stages[2] = SampleStage::temperature;
    row.temperature = i == 0 ? 0.0f : 0.8f;
    row.top_k = 40;
    row.top_p = 0.9f;
    row.typical_p = row.repeat_penalty = 1.0f;
    row.uniform[0] = row.uniform[1] = 0.19 * i;
    row.logits_row = i == 2 ? -1 : i;
    row.mask_row = i == 3 ? 0 : -1;
    row.n_probs = 3;
  }
  std::vector<std::int32_t> words(sizeof(SampleRow) / 4 * kRows);
  std::memcpy(words.data(), rows.data(), words.size() * 4);
  const TensorId logits = bed.random_input("logits", Shape(kVocab, kRows), Rows::outputs, 3.0f);
  const TensorId row_port = bed.input("rows", Shape(sizeof(SampleRow) / 4, kRows), Rows::outputs, words);
  const TensorId adjust = bed.input("adjust", Shape(4, 1), Rows::fixed, std::vector<std::int32_t>(4, 0));
  const TensorId masks = bed.input("masks", Shape((kVocab + 31) / 32, 1), Rows::fixed,
                                   std::vector<std::int32_t>((kVocab + 31) / 32, 0x00010001));
  const TensorId src[] = {logits, row_port, adjust, masks};
  bed.output(bed.graph().add(Op::sample, SampleParams{}, src, {}, "picked")[0], "picked");
  const StepCounts counts{1, 4, 1};
  const Outcome want = bed.run_reference(counts);
  const Outcome got = bed.run_cpu(counts, {.n_threads = kThreads});
  EXPECT_EQ(got.words.at("picked"), want.words.at("picked"));
  std::int32_t token;
  std::memcpy(&token, &got.words.at("picked")[3 * sizeof(SampleResult) / 4], 4);
  EXPECT_EQ(token % 16, 0) << "the mask allows multiples of 16";
}

}  // namespace
}  // namespace ggml::cpu::test
