#include "ggml/kv_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ggml/hadamard.h"
#include "ggml/quant.h"

namespace ggml {
namespace {

constexpr int kDim = 128;
constexpr int kRows = 64;

std::vector<DType> kv_types() {
  std::vector<DType> types;
  for (int i = 0; i < kTypeCount; ++i)
    if (type_info(static_cast<DType>(i)).kv_capable) types.push_back(static_cast<DType>(i));
  return types;
}

std::vector<float> normal_rows(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(kDim * kRows));
  for (float& v : x) v = normal(random);
  return x;
}

struct StoredRow {
  std::vector<std::byte> values, scales;
};

StoredRow store(DType type, const float* x) {
  const KvForm form = kv_form(type);
  StoredRow row{std::vector<std::byte>(form.value_bytes(kDim)), std::vector<std::byte>(form.scale_bytes(kDim))};
  encode_kv_row(type, x, kDim, row.values.data(), row.scales.data());
  return row;
}

std::vector<float> load(DType type, const StoredRow& row) {
  std::vector<float> x(kDim);
  decode_kv_row(type, row.values.data(), row.scales.data(), 0, kDim, x.data());
  return x;
}

/// Root of the mean square of the errors over that of the values.
double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    size += std::pow(static_cast<double>(x[i]), 2);
  }
  return std::sqrt(error / size);
}

class KvRows : public testing::TestWithParam<DType> {};

TEST_P(KvRows, AreNearlyAsGoodAsThoseOfASearch) {
  const DType type = GetParam();
  const std::vector<float> x = normal_rows(1);
  std::vector<float> ours, files(x.size());
  std::vector<std::byte> file_row(row_bytes(type, kDim));
  for (int row = 0; row < kRows; ++row) {
    const float* from = x.data() + row * kDim;
    const std::vector<float> back = load(type, store(type, from));
    ours.insert(ours.end(), back.begin(), back.end());
    quantise_row(type, {from, kDim}, {}, file_row.data());
    dequantise_row(type, file_row.data(), kDim, files.data() + row * kDim);
  }
  const double own = relative_error(x, ours), of_files = relative_error(x, files);
  RecordProperty("error", std::to_string(own));
  EXPECT_LE(own, 1.15 * of_files);
}

TEST_P(KvRows, DecodeToTheSameInPieces) {
  const DType type = GetParam();
  const std::vector<float> x = normal_rows(2);
  const StoredRow row = store(type, x.data());
  const std::vector<float> whole = load(type, row);
  for (int first = 0; first < kDim; first += 32)
    for (int n = 32; first + n <= kDim; n += 32) {
      std::vector<float> piece(static_cast<std::size_t>(n));
      decode_kv_row(type, row.values.data(), row.scales.data(), first, n, piece.data());
      EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + first)) << first << ", " << n;
    }
}

TEST_P(KvRows, KeepZerosAndTheLargestValue) {
  const DType type = GetParam();
  std::vector<float> x(kDim, 0.0f);
  for (const float v : load(type, store(type, x.data()))) EXPECT_EQ(v, 0.0f);
  for (const float value : {5.0f, -5.0f}) {
    x[40] = value;
    const std::vector<float> back = load(type, store(type, x.data()));
    EXPECT_NEAR(back[40], value, 0.005 * 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KvRows, testing::ValuesIn(kv_types()),
                         [](const auto& test) { return std::string(type_info(test.param).id); });

TEST(KvRow, HoldsTheBlocksOfFilesInTwoPlanes) {
  // Without a search in either and without ties both round alike.
  const std::vector<float> x = normal_rows(3);
  for (const DType type : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0}) {
    const KvForm form = kv_form(type);
    std::vector<std::byte> file(row_bytes(type, kDim));
    quantise_row(type, {x.data(), kDim}, {}, file.data());
    const StoredRow row = store(type, x.data());
    const std::size_t codes = form.value_bytes(32), scales = static_cast<std::size_t>(form.group_bytes);
    for (std::size_t group = 0; group < kDim / 32; ++group) {
      const std::byte* block = file.data() + group * (codes + scales);
      EXPECT_EQ(std::memcmp(block, row.scales.data() + group * scales, scales), 0) << type_info(type).id;
      EXPECT_EQ(std::memcmp(block + scales, row.values.data() + group * codes, codes), 0) << type_info(type).id;
    }
  }
}

TEST(Hadamard, IsOrthonormalAndItsOwnInverse) {
  for (const int n : {1, 2, 8, 64, 256}) {
    ASSERT_TRUE(has_hadamard(n));
    // A row is a sign pattern by definition, and twice the transform is nothing.
    for (int row = 0; row < n; row += n / 8 + 1) {
      std::vector<double> x(static_cast<std::size_t>(n), 0.0);
      x[static_cast<std::size_t>(row)] = 1;
      hadamard(x.data(), n);
      for (int i = 0; i < n; ++i)
        EXPECT_NEAR(x[static_cast<std::size_t>(i)],
                    (__builtin_popcount(static_cast<unsigned>(row & i)) % 2 == 0 ? 1 : -1) / std::sqrt(n), 1e-12);
      hadamard(x.data(), n);
      for (int i = 0; i < n; ++i) EXPECT_NEAR(x[static_cast<std::size_t>(i)], i == row ? 1 : 0, 1e-12);
    }
  }
  for (const int n : {0, -2, 3, 48, 80, 96, 192, 576}) EXPECT_FALSE(has_hadamard(n)) << n;
}

TEST(Hadamard, MakesRowsWithAnOutlierEasierToKeep) {
  std::vector<float> x = normal_rows(4);
  x.resize(kDim);
  x[17] = 60;
  std::vector<float> rotated = x;
  hadamard(rotated.data(), kDim);
  std::vector<float> back = load(DType::q4_0, store(DType::q4_0, rotated.data()));
  hadamard(back.data(), kDim);
  EXPECT_LT(relative_error(x, back), 0.7 * relative_error(x, load(DType::q4_0, store(DType::q4_0, x.data()))));
}

}  // namespace
}  // namespace ggml
