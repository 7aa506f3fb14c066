#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cpu/test_bed.h"

// Products of prompts, of which the tests of all devices have small ones only: several tiles each way, tiles that are
// not full, rows of several super blocks, experts that meet more rows than a tile has.
namespace ggml::cpu::test {
namespace {

constexpr DType kTypes[] = {DType::q4_k, DType::q5_k, DType::q6_k, DType::q4_0, DType::q8_0};

class ManyRows : public testing::TestWithParam<DType> {};

TEST_P(ManyRows, AreMultipliedByAMatrix) {
  for (const std::int64_t n : {128, 300}) {
    for (const int rows : {9, 31, 32, 40, 64, 65, 200}) {
      const std::int64_t k = n == 300 ? 1280 : 2048;
      TestBed bed(rows + rows % 2, 1, static_cast<std::uint32_t>(rows));
      const TensorId x = bed.random_input("x", Shape(k, rows + rows % 2), Rows::tokens);
      Slot slot = bed.slot(GetParam(), Shape(k, n));
      slot.bias = bed.weight_id(DType::f32, Shape(n), 0.3f);
      bed.output(bed.graph().linear(x, slot, "y"), "y");
      const StepCounts counts{rows, 0, 1};
      const Outcome got = bed.run_cpu(counts, {}), again = bed.run_cpu(counts, {});
      const auto& y = got.values.at("y");
      expect_close(y, bed.run_reference(counts).values.at("y"), n, n * rows, {.row = 2e-5},
                   std::to_string(n) + " x " + std::to_string(rows));
      EXPECT_TRUE(std::equal(y.begin(), y.begin() + n * rows, again.values.at("y").begin())) << "other bytes";
    }
  }
}

/// Of each expert's matrix its own pairs; with tokens that leave some out.
TEST_P(ManyRows, AreMultipliedByTheirExperts) {
  constexpr int kExperts = 3, kUsed = 2;
  constexpr std::int64_t kEmbd = 256, kWidth = 768;
  for (const int rows : {90, 1700}) {  // 1700: tiles of 128 rows
    TestBed bed(rows, 1, static_cast<std::uint32_t>(rows));
    const TensorId x = bed.random_input("x", Shape(kEmbd, rows), Rows::tokens);
    std::vector<std::int32_t> chosen;
    for (int t = 0; t < rows; ++t) {
      chosen.push_back(t % 17 == 0 ? -1 : t % kExperts);
      chosen.push_back(t % kExperts == 0 ? 1 : 0);
    }
    const TensorId ids = bed.input("ids", Shape(kUsed, rows), Rows::tokens, chosen);
    const TensorId weights = bed.random_input("weights", Shape(kUsed, rows), Rows::tokens);
    const std::vector<Slot> slots{bed.slot(GetParam(), Shape(kEmbd, kWidth, kExperts)),
                                  bed.slot(GetParam(), Shape(kEmbd, kWidth, kExperts)),
                                  bed.slot(GetParam(), Shape(kWidth, kEmbd, kExperts))};
    bed.output(bed.graph().moe_ffn(x, {ids, weights}, slots, {.n_expert = kExperts, .n_used = kUsed}, "y"), "y");
    const StepCounts counts{rows, 0, 1};
    // Hidden values are rounded to 8 bits: those near a tie may fall the other way, seldom and by a known amount.
    const Tolerance tolerance{.row = 3e-5, .outlier_row = 5e-3, .outlier_share = 0.1};
    expect_close(bed.run_cpu(counts, {}).values.at("y"), bed.run_reference(counts).values.at("y"), kEmbd, kEmbd * rows,
                 tolerance, std::to_string(rows) + " rows");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ManyRows, testing::ValuesIn(kTypes),
                         [](const auto& row) { return std::string(type_info(row.param).id); });

}  // namespace
}  // namespace ggml::cpu::test
