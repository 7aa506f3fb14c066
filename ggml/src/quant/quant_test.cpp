#include "ggml/quant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "ggml/error.h"
#include "quant/golden.h"

namespace ggml {
namespace {

using golden::kCols;
using golden::kRows;

/// Types whose encoding is a formula: the spec gives the bytes.
bool is_exact_type(DType type) {
  static const std::set<std::string_view> kExact{
      "f32",     "f16",     "bf16",    "q4_0",     "q4_1",     "q5_0",     "q5_1",     "q8_0",     "q8_kv",
      "mxfp4",   "nvfp4",   "q1_0",    "q2_0",     "tq1_0",    "tq2_0",    "iq1_bn",   "iq2_bn",   "q4_0_r8",
      "q5_0_r4", "q8_0_r8", "q8_k_r8", "q8_k_r16", "q8_kv_r8", "mxfp4_r8", "bf16_r16", "iq2_bn_r4"};
  return kExact.contains(type_info(type).id);
}

std::vector<std::byte> encode(DType type, const std::vector<float>& x, const std::vector<float>& importance) {
  std::vector<std::byte> out(row_bytes(type, kCols) * kRows);
  quantise_rows(type, x, kCols, importance, out.data());
  return out;
}

std::vector<float> decode(DType type, const std::vector<std::byte>& q) {
  std::vector<float> out(kRows * kCols);
  for (std::int64_t r = 0; r < kRows; ++r) dequantise_row_of(type, q.data(), r, kCols, out.data() + r * kCols);
  return out;
}

/// Root of the mean of w * (a - b)^2 over the mean of w, w per column or empty.
double rms_error(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& w) {
  double sum = 0, weight = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double wi = w.empty() ? 1.0 : w[i % w.size()];
    sum += wi * (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    weight += wi;
  }
  return std::sqrt(sum / weight);
}

class GoldenType : public testing::TestWithParam<DType> {
 protected:
  std::string id() const { return std::string(type_info(GetParam()).id); }
};

TEST_P(GoldenType, DecodesToTheReferencesBits) {
  for (const char* which : {"plain", "edge", "random"}) {
    const auto want = golden::row_hashes(id(), which);
    if (want.empty()) continue;
    const auto got = decode(GetParam(), golden::bytes(id() + "." + which + ".q.npy"));
    for (std::int64_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(golden::row_hash(got.data() + r * kCols, kCols), want[static_cast<std::size_t>(r)])
          << id() << " " << which << " row " << r << ", which starts with " << got[static_cast<std::size_t>(r * kCols)];
    }
  }
}

TEST_P(GoldenType, EncodesSimpleTypesToTheReferencesBytes) {
  if (!is_exact_type(GetParam())) return;  // searched types are judged by their error
  for (const char* which : {"plain", "edge"}) {
    const auto want = golden::bytes(id() + "." + which + ".q.npy");
    const auto got = encode(GetParam(), golden::input(which == std::string("edge") ? "edge" : "main"), {});
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << id() << " " << which << " byte " << i;
  }
}

TEST_P(GoldenType, EncodesWithAtMostTheReferencesError) {
  const auto x = golden::input("main");
  const auto importance = golden::floats("importance.npy");
  for (const char* which : {"plain", "imatrix"}) {
    const bool weighted = which == std::string("imatrix");
    const auto want = golden::expected(id(), which, "rmse");
    ASSERT_EQ(want.size(), 2u);
    const auto decoded = decode(GetParam(), encode(GetParam(), x, weighted ? importance : std::vector<float>{}));
    RecordProperty(id() + std::string("_") + which, std::to_string(rms_error(decoded, x, {}) / want[0]));
    EXPECT_LE(rms_error(decoded, x, {}), want[0] * 1.01 + 1e-12) << id() << " " << which;
    EXPECT_LE(rms_error(decoded, x, importance), want[1] * 1.01 + 1e-12) << id() << " " << which << " weighted";
  }
}

TEST_P(GoldenType, SurvivesHostileInput) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float hostile : {0.0f, -0.0f, inf, -inf, nan, 3e38f, -3e38f, 1e-42f}) {
    for (const bool everywhere : {true, false}) {
      std::vector<float> x(kRows * kCols, everywhere ? hostile : 0.25f);
      x[100] = hostile;
      for (const std::vector<float>& importance : {std::vector<float>{}, std::vector<float>(kCols, 1.0f)}) {
        const auto q = encode(GetParam(), x, importance);
        EXPECT_EQ(decode(GetParam(), q).size(), x.size());
      }
    }
  }
}

TEST_P(GoldenType, HasTheSameWeightsInterleaved) {
  const auto form = interleaved_form(GetParam());
  if (!form) return;
  const TypeInfo& info = type_info(*form);
  ASSERT_GT(info.rows_per_group, 1);
  ASSERT_EQ(info.name.substr(0, info.name.rfind('_')), type_info(GetParam()).name);
  for (const char* which : {"plain", "random"}) {
    const auto rows = golden::bytes(id() + "." + which + ".q.npy");
    if (rows.empty()) continue;
    std::vector<std::byte> groups(rows.size());
    interleave_rows(*form, rows.data(), kRows, kCols, groups.data());
    std::vector<float> want(kCols), got(kCols);
    for (std::int64_t r = 0; r < kRows; ++r) {
      dequantise_row_of(GetParam(), rows.data(), r, kCols, want.data());
      dequantise_row_of(*form, groups.data(), r, kCols, got.data());
      for (std::size_t i = 0; i < want.size(); ++i) {  // a bias that is multiplied first may round otherwise
        if (std::isnan(want[i])) continue;
        ASSERT_NEAR(got[i], want[i], 1e-6 * std::fabs(want[i]))
            << id() << " " << which << " row " << r << " column " << i;
      }
    }
  }
}

TEST(Interleaving, KnowsTheFormsByTheirNames) {
  EXPECT_EQ(interleaved_form(DType::q4_k), DType::q4_k_r4);
  EXPECT_EQ(interleaved_form(DType::iq4_ks), DType::iq4_ks_r4);
  EXPECT_EQ(interleaved_form(DType::q8_0), DType::q8_0_r8);
  EXPECT_EQ(interleaved_form(DType::iq2_xxs), DType::iq2_xxs_r4);
  for (const DType none :
       {DType::f16, DType::bf16, DType::q4_1, DType::iq1_s, DType::q8_kv, DType::q4_k_r4, DType::i32})
    EXPECT_FALSE(interleaved_form(none)) << type_info(none).id;
}

TEST_P(GoldenType, FindsTheBlockWithoutASaneScale) {
  const TypeInfo& info = type_info(GetParam());
  const auto rows = static_cast<std::size_t>(info.rows_per_group);
  std::vector<float> x(kCols * rows, 0.5f);
  x[1] = -1.0f;
  std::vector<std::byte> q(row_bytes(info.type, kCols) * rows);
  quantise_rows(info.type, x, kCols, {}, q.data());
  EXPECT_FALSE(find_bad_block(info.type, q.data(), kCols).has_value());
  // All bits set is a NaN in every field. Where the scale is the row's it is found there; else in the second block.
  if (info.row_header_bytes > 0) {
    std::memset(q.data(), 0xff, static_cast<std::size_t>(info.row_header_bytes));
    EXPECT_EQ(find_bad_block(info.type, q.data(), kCols), 0);
    return;
  }
  const std::size_t block = static_cast<std::size_t>(info.block_bytes) * rows;
  std::memset(q.data() + block, 0xff, block);
  if (id() == "nvfp4") return;  // its small scales have no NaN: both patterns for one decode to zero
  EXPECT_EQ(find_bad_block(info.type, q.data(), kCols), 1);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, GoldenType, testing::ValuesIn(golden::types()),
                         [](const auto& p) { return std::string(type_info(p.param).id); });

TEST(Half, AllBitPatternsSurviveTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      ASSERT_EQ(f32_to_f16(value), half);
    }
  }
}

TEST(Half, RoundsTiesToEven) {
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);      // between 1 and the next: down to even
  EXPECT_EQ(f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);  // up to even
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);             // the largest half
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);             // a tie that becomes infinity
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);             // half of the smallest denormal
  EXPECT_EQ(f32_to_f16(3 * 0x1p-26f), 0x0001);         // three quarters of it
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
  EXPECT_EQ(f32_to_f16(0x1.ffep-15f + 0x1p-26f), 0x0400);  // the largest denormal and a bit: the smallest normal
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace ggml
