#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/test_bed.h"
#include "ggml/quant.h"
#include "ggml/reference.h"
#include "test_support.h"

namespace ggml::cpu::test {
namespace {

const std::vector<DType> kWeightTypes = {
#define QTYPE(id, num, name, weights, bytes, header, rows, trailer, kv, act) DType::id,
#include "quant/types.def"
#undef QTYPE
};

/// A sanitizer looks at how the work is dealt out, which is the same for types of one form.
std::vector<DType> weight_types() {
  if (tandem::is_sanitized()) return {DType::f32, DType::f16, DType::q8_0, DType::q4_k, DType::iq4_xs, DType::q4_k_r4};
  std::vector<DType> types;
  std::copy_if(kWeightTypes.begin(), kWeightTypes.end(), std::back_inserter(types), is_weight_type);
  return types;
}

std::vector<int> row_counts() {
  if (tandem::is_sanitized()) return {1, 2, 7, 16, 33};
  std::vector<int> counts;
  for (int n = 1; n <= 16; ++n) counts.push_back(n);
  counts.push_back(33);
  return counts;
}

/// Sum over k of |w| |x| for every result: what rounding errors of a product are measured by.
std::vector<double> absolute_products(const Weight& w, std::span<const float> x, ActType round_to) {
  const auto k = static_cast<std::size_t>(w.shape[0]);
  const auto n = static_cast<std::size_t>(w.shape[1]);
  std::vector<float> row(k), decoded(k * n);
  for (std::size_t i = 0; i < n; ++i) {
    dequantise_row_of(w.type, w.placements[0].data, static_cast<std::int64_t>(i), w.shape[0], &decoded[i * k]);
  }
  std::vector<double> sums;
  for (std::size_t m = 0; m < x.size() / k; ++m) {
    row.assign(x.begin() + static_cast<std::ptrdiff_t>(m * k), x.begin() + static_cast<std::ptrdiff_t>((m + 1) * k));
    round_activations(round_to, row);
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0.0;
      for (std::size_t j = 0; j < k; ++j) sum += std::fabs(static_cast<double>(decoded[i * k + j]) * row[j]);
      sums.push_back(sum);
    }
  }
  return sums;
}

/// What a product may be off by, relative to the sum of absolute products: the rounding of sums in f32. The products of
/// IQ6_K use a table that is the rounded form of what its decoder computes.
double product_bound(DType type) {
  constexpr double kSumsOfF32 = 1e-5, kRoundedTable = 1e-2;
  return type == DType::iq6_k ? kRoundedTable : kSumsOfF32;
}

class LinearOfType : public testing::TestWithParam<DType> {};

TEST_P(LinearOfType, MatchesItsDecompositionToTheRoundingOfF32) {
  const DType type = GetParam();
  const int block = type_info(type).block_weights;
  const std::int64_t k = block == 256 ? 512 : block > 32 ? 384 : 160, n = type_info(type).rows_per_group > 1 ? 80 : 75;
  const double bound = product_bound(type);
  for (const int rows : row_counts()) {
    const int bucket = rows + rows % 3;  // now and then larger than the count
    TestBed bed(bucket, 1, static_cast<std::uint32_t>(rows));
    const std::vector<float> x = bed.normal(k * bucket, 1.0f);
    const TensorId in = bed.input("x", Shape(k, bucket), Rows::tokens, x);
    const Weight& w = bed.weight(type, Shape(k, n), 1.0f / std::sqrt(static_cast<float>(k)));
    Slot slot;
    slot.weight = bed.graph().weight(w);
    bed.output(bed.graph().linear(in, slot, "y"), "y");
    const StepCounts counts{rows, 0, 1};
    const Outcome want = bed.run_reference(counts);
    const std::vector<double> sizes =
        absolute_products(w, std::span(x).first(static_cast<std::size_t>(k * rows)), type_info(type).act);
    for (const std::string& isa : isa_names()) {
      const Outcome got = bed.run_cpu(counts, {.isa = isa, .n_threads = 1 + rows % 4});
      const std::vector<float>& a = got.values.at("y");
      const std::vector<float>& b = want.values.at("y");
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        ASSERT_LE(std::fabs(static_cast<double>(a[i]) - b[i]), bound * sizes[i] + 1e-30)
            << isa << ", " << rows << " rows, element " << i;
      }
      expect_close(a, b, n, n * rows, {.row = 10 * bound}, isa + " " + std::to_string(rows) + " rows");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, LinearOfType, testing::ValuesIn(weight_types()),
                         [](const auto& row) { return std::string(type_info(row.param).id); });

TEST(Linear, TakesAPromptOfFiveHundredAndTwelveRows) {
  for (const DType type : {DType::q4_k, DType::q8_0, DType::f16}) {
    TestBed bed(512, 1, 7);
    const TensorId x = bed.random_input("x", Shape(256, 512), Rows::tokens);
    bed.output(bed.graph().linear(x, bed.slot(type, Shape(256, 40)), "y"), "y");
    const StepCounts counts{511, 0, 1};
    const Outcome want = bed.run_reference(counts);
    for (const std::string& isa : isa_names()) {
      const Outcome got = bed.run_cpu(counts, {.isa = isa, .n_threads = 3});
      expect_close(got.values.at("y"), want.values.at("y"), 40, 40 * 511, {.row = 2e-5}, isa);
    }
  }
}

TEST(Linear, AppliesScaleThenBias) {
  TestBed bed(4, 1, 3);
  const TensorId x = bed.random_input("x", Shape(64, 4), Rows::tokens);
  Slot slot = bed.slot(DType::q8_0, Shape(64, 50));
  slot.scale = bed.weight_id(DType::f32, Shape(1), 2.0f);
  slot.bias = bed.weight_id(DType::f32, Shape(50), 1.0f);
  bed.output(bed.graph().linear(x, slot, "y"), "y");
  const StepCounts counts{3, 0, 1};
  expect_close(bed.run_cpu(counts, {.n_threads = 2}).values.at("y"), bed.run_reference(counts).values.at("y"), 50, 150,
               {.row = 1e-5}, "scale and bias");
}

TEST(Linear, GivesTheSameBytesForAnyNumberOfThreads) {
  TestBed bed(32, 1, 5);
  const TensorId x = bed.random_input("x", Shape(256, 32), Rows::tokens);
  bed.output(bed.graph().linear(x, bed.slot(DType::q4_k, Shape(256, 300)), "y"), "y");
  for (const int rows : {1, 5, 32}) {
    const Outcome one = bed.run_cpu({rows, 0, 1}, {.n_threads = 1});
    for (const int threads : {2, 3, 4}) {
      const Outcome many = bed.run_cpu({rows, 0, 1}, {.n_threads = threads});
      const auto live = static_cast<std::ptrdiff_t>(rows) * 300;
      EXPECT_TRUE(
          std::equal(one.values.at("y").begin(), one.values.at("y").begin() + live, many.values.at("y").begin()))
          << rows << " rows, " << threads << " threads";
    }
  }
}

struct QkvCase {
  const char* name;
  bool fused, norm, full_row, per_head_weights, bias;
  float clamp;
};

class QkvForm : public testing::TestWithParam<QkvCase> {};

TEST_P(QkvForm, MatchesItsDecomposition) {
  const QkvCase& form = GetParam();
  for (const int rows : {1, 3, 16, 40}) {
    TestBed bed(40, 1, 11);
    QkvParams p{.n_head = 6,
                .n_head_kv = 2,
                .dk = 24,
                .dv = 40,
                .fused = form.fused,
                .has_qk_norm = form.norm,
                .norm_full_row = form.full_row,
                .norm_eps = 1e-6f,
                .clamp = form.clamp};
    const TensorId x = bed.random_input("x", Shape(256, 40), Rows::tokens);
    const std::int64_t nq = p.dk * p.n_head, nk = p.dk * p.n_head_kv, nv = p.dv * p.n_head_kv;
    std::vector<Slot> slots;
    if (form.fused) {
      slots.push_back(bed.slot(DType::q5_k, Shape(256, nq + nk + nv)));
      if (form.bias) slots[0].bias = bed.weight_id(DType::f32, Shape(nq + nk + nv), 0.5f);
    } else {
      slots = {bed.slot(DType::q4_k, Shape(256, nq)), bed.slot(DType::q8_0, Shape(256, nk)),
               bed.slot(DType::f16, Shape(256, nv))};
      const std::int64_t widths[] = {nq, nk, nv};
      for (std::size_t i = 0; form.bias && i < 3; ++i)
        slots[i].bias = bed.weight_id(DType::f32, Shape(widths[i]), 0.5f);
    }
    if (form.norm) {
      for (const int heads : {p.n_head, p.n_head_kv}) {
        const Shape shape = form.full_row           ? Shape(p.dk * heads)
                            : form.per_head_weights ? Shape(p.dk, heads)
                                                    : Shape(p.dk);
        Slot norm;
        norm.weight = bed.weight_id(DType::f32, shape, 1.0f);
        slots.push_back(norm);
      }
    }
    const GraphBuilder::Qkv qkv = bed.graph().qkv(x, slots, p, "qkv");
    bed.output(qkv.q, "q");
    bed.output(qkv.k, "k");
    bed.output(qkv.v, "v");
    const StepCounts counts{rows, 0, 1};
    const Outcome want = bed.run_reference(counts);
    for (const bool primitives : {false, true}) {
      const Outcome got = bed.run_cpu(counts, {.n_threads = 3, .decompose_all = primitives});
      const std::string what = std::string(form.name) + (primitives ? " in primitives" : "");
      expect_close(got.values.at("q"), want.values.at("q"), nq, nq * rows, {.row = 2e-5}, what + " q");
      expect_close(got.values.at("k"), want.values.at("k"), nk, nk * rows, {.row = 2e-5}, what + " k");
      expect_close(got.values.at("v"), want.values.at("v"), nv, nv * rows, {.row = 2e-5}, what + " v");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, QkvForm,
                         testing::Values(QkvCase{"plain", false, false, false, false, false, 0.0f},
                                         QkvCase{"bias_clamp", false, false, false, false, true, 0.7f},
                                         QkvCase{"head_norm", false, true, false, false, false, 0.0f},
                                         QkvCase{"weights_per_head", false, true, false, true, true, 0.0f},
                                         QkvCase{"row_norm", false, true, true, false, false, 0.0f},
                                         QkvCase{"fused", true, false, false, false, true, 0.0f},
                                         QkvCase{"fused_norm", true, true, false, false, false, 1.0f}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ggml::cpu::test
