#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/matmul_checker.h"
#include "cpu/kernels/tables.h"
#include "ggml/kv_layout.h"
#include "ggml/quant.h"

namespace ggml::cpu {
namespace {

using check::random_floats;

constexpr float kInf = std::numeric_limits<float>::infinity();

class Vectors : public testing::TestWithParam<const KernelTable*> {
 protected:
  const VecKernels& ours() const { return GetParam()->vec; }
  const VecKernels& plain() const { return kTableScalar.vec; }
};

/// Every element within `relative` of itself plus `absolute`.
void expect_close(const std::vector<float>& got, const std::vector<float>& want, double relative, double absolute,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;  // also infinities
    ASSERT_NEAR(got[i], want[i], relative * std::fabs(want[i]) + absolute) << what << " element " << i;
  }
}

const std::vector<std::int64_t> kLengths{1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 257, 1000};

std::vector<float> spread_values(std::int64_t n) {
  auto x = random_floats(n, static_cast<std::uint32_t>(n), 4);
  if (n > 20) x[3] = 0, x[4] = -0.0f, x[5] = 88, x[6] = -88, x[7] = 1e-20f, x[8] = -1e-3f, x[9] = 30, x[10] = -30;
  return x;
}

TEST_P(Vectors, MapElementsAsTheScalarTableDoes) {
  using Map = void (*)(const float*, std::int64_t, float*) noexcept;
  const std::vector<std::pair<const char*, Map VecKernels::*>> maps{{"silu", &VecKernels::silu},
                                                                    {"gelu", &VecKernels::gelu},
                                                                    {"sigmoid", &VecKernels::sigmoid},
                                                                    {"tanh", &VecKernels::tanh}};
  for (const std::int64_t n : kLengths) {
    const auto x = spread_values(n);
    for (const auto& [name, member] : maps) {
      std::vector<float> got(x.size()), want(x.size());
      (ours().*member)(x.data(), n, got.data());
      (plain().*member)(x.data(), n, want.data());
      expect_close(got, want, 2e-6, 1e-9, name);  // far below zero the argument's own rounding shows
    }
  }
}

TEST_P(Vectors, CombineTwoRowsAsTheScalarTableDoes) {
  using Zip = void (*)(const float*, const float*, std::int64_t, float*) noexcept;
  const std::vector<std::pair<const char*, Zip VecKernels::*>> zips{{"silu_mul", &VecKernels::silu_mul},
                                                                    {"gelu_mul", &VecKernels::gelu_mul},
                                                                    {"relu_mul", &VecKernels::relu_mul},
                                                                    {"add", &VecKernels::add},
                                                                    {"mul", &VecKernels::mul}};
  for (const std::int64_t n : kLengths) {
    const auto a = spread_values(n), b = random_floats(n, 77);
    for (const auto& [name, member] : zips) {
      std::vector<float> got(a.size()), want(a.size());
      (ours().*member)(a.data(), b.data(), n, got.data());
      (plain().*member)(a.data(), b.data(), n, want.data());
      expect_close(got, want, 2e-6, 1e-9, name);  // far below zero the argument's own rounding shows
      got = a;                                    // in place
      (ours().*member)(got.data(), b.data(), n, got.data());
      expect_close(got, want, 2e-6, 1e-9, name);
    }
  }
}

TEST_P(Vectors, ReduceRowsAsTheScalarTableDoes) {
  for (const std::int64_t n : kLengths) {
    const auto a = random_floats(n, 5), b = random_floats(n, 6);
    double magnitude = 0, sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      magnitude += std::fabs(static_cast<double>(a[i]) * b[i]);
      sum += std::fabs(a[i]);
    }
    EXPECT_NEAR(ours().dot(a.data(), b.data(), n), plain().dot(a.data(), b.data(), n), 1e-6 * magnitude);
    EXPECT_NEAR(ours().sum(a.data(), n), plain().sum(a.data(), n), 1e-6 * sum);
    EXPECT_EQ(ours().max(a.data(), n), plain().max(a.data(), n));
  }
  EXPECT_EQ(ours().max(nullptr, 0), -kInf);
  EXPECT_EQ(ours().sum(nullptr, 0), 0.0f);
}

TEST_P(Vectors, NormaliseRowsAsTheScalarTableDoes) {
  for (const std::int64_t n : kLengths) {
    const auto x = random_floats(n, 8, 3), w = random_floats(n, 9), b = random_floats(n, 10);
    std::vector<float> got(x.size()), want(x.size());
    ours().rms_norm(x.data(), w.data(), 1e-5f, n, got.data());
    plain().rms_norm(x.data(), w.data(), 1e-5f, n, want.data());
    expect_close(got, want, 2e-6, 1e-9, "rms_norm");
    ours().rms_norm(x.data(), nullptr, 1e-5f, n, got.data());
    plain().rms_norm(x.data(), nullptr, 1e-5f, n, want.data());
    expect_close(got, want, 2e-6, 1e-9, "rms_norm without weight");
    ours().layer_norm(x.data(), w.data(), b.data(), 1e-5f, n, got.data());
    plain().layer_norm(x.data(), w.data(), b.data(), 1e-5f, n, want.data());
    expect_close(got, want, 1e-5, 3e-6, "layer_norm");
  }
  std::vector<float> zeros(40, 0.0f), out(40, 1.0f);
  ours().rms_norm(zeros.data(), nullptr, 1e-6f, 40, out.data());
  EXPECT_EQ(out, zeros);
}

TEST_P(Vectors, SoftmaxSumsToOneAndIgnoresMaskedElements) {
  for (const std::int64_t n : kLengths) {
    auto x = random_floats(n, 12, 5);
    if (n > 8) x[2] = x[7] = -kInf;
    std::vector<float> got(x.size()), want(x.size());
    ours().softmax(x.data(), n, got.data());
    plain().softmax(x.data(), n, want.data());
    expect_close(got, want, 3e-6, 1e-30, "softmax");
    if (n > 8) {
      EXPECT_EQ(got[2], 0.0f);
    }
    const float total = ours().exp_sub_max(x.data(), 1.5f, n, got.data());
    EXPECT_NEAR(total, plain().exp_sub_max(x.data(), 1.5f, n, want.data()), 2e-6 * total);
    expect_close(got, want, 3e-6, 1e-30, "exp_sub_max");
  }
  const std::vector<float> masked(19, -kInf);
  std::vector<float> out(19, 1.0f);
  ours().softmax(masked.data(), 19, out.data());
  for (const float v : out) EXPECT_EQ(v, 0.0f);
  EXPECT_EQ(ours().exp_sub_max(masked.data(), -kInf, 19, out.data()), 0.0f);
}

TEST_P(Vectors, ExponentialIsRightOverItsWholeRange) {
  std::vector<float> x;
  for (float v = -104; v < 89; v += 0.01f) x.push_back(v);
  std::vector<float> got(x.size());
  ours().exp_sub_max(x.data(), 0, static_cast<std::int64_t>(x.size()), got.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    if (want > std::numeric_limits<float>::max()) {
      EXPECT_EQ(got[i], kInf);
    } else {
      ASSERT_NEAR(got[i], want, 5e-7 * want + 1e-44) << x[i];  // denormal results have fewer bits
    }
  }
}

TEST_P(Vectors, RopeTurnsPairsOfBothLayouts) {
  for (const int n_rot : {2, 4, 14, 16, 32, 34, 64, 80, 128}) {
    const int dim = n_rot + 6;
    const auto x = random_floats(dim, 3), angle = random_floats(n_rot / 2, 4, 2);
    std::vector<float> cos, sin;
    for (const float a : angle) cos.push_back(std::cos(a)), sin.push_back(std::sin(a));
    auto norm = x, neox = x;
    ours().rope_norm({norm.data(), cos.data(), sin.data(), n_rot});
    ours().rope_neox({neox.data(), cos.data(), sin.data(), n_rot});
    for (int i = 0; i < n_rot / 2; ++i) {
      const auto at = static_cast<std::size_t>(i), half = static_cast<std::size_t>(n_rot / 2);
      const double c = cos[at], s = sin[at];
      EXPECT_NEAR(norm[2 * at], x[2 * at] * c - x[2 * at + 1] * s, 1e-6);
      EXPECT_NEAR(norm[2 * at + 1], x[2 * at] * s + x[2 * at + 1] * c, 1e-6);
      EXPECT_NEAR(neox[at], x[at] * c - x[at + half] * s, 1e-6);
      EXPECT_NEAR(neox[at + half], x[at] * s + x[at + half] * c, 1e-6);
    }
    for (auto i = static_cast<std::size_t>(n_rot); i < x.size(); ++i) {
      EXPECT_EQ(norm[i], x[i]);
      EXPECT_EQ(neox[i], x[i]);
    }
  }
}

TEST_P(Vectors, ConvertHalvesAsTheScalarTableDoes) {
  for (const std::int64_t n : kLengths) {
    auto x = random_floats(n, 21, 100);
    if (n > 8)
      x[0] = 65520, x[1] = 1e-8f, x[2] = -3e-6f, x[3] = kInf, x[4] = 1e38f, x[5] = 3.3e38f, x[6] = 1 + 0x1p-11f;
    std::vector<std::uint16_t> got(x.size()), want(x.size());
    std::vector<float> back(x.size()), back_want(x.size());
    ours().f32_to_f16(x.data(), n, got.data());
    plain().f32_to_f16(x.data(), n, want.data());
    EXPECT_EQ(got, want);
    ours().f16_to_f32(got.data(), n, back.data());
    plain().f16_to_f32(got.data(), n, back_want.data());
    EXPECT_EQ(back, back_want);
    ours().f32_to_bf16(x.data(), n, got.data());
    plain().f32_to_bf16(x.data(), n, want.data());
    EXPECT_EQ(got, want);
    ours().bf16_to_f32(got.data(), n, back.data());
    plain().bf16_to_f32(got.data(), n, back_want.data());
    EXPECT_EQ(back, back_want);
  }
}

TEST_P(Vectors, ScaleAndAccumulate) {
  for (const std::int64_t n : kLengths) {
    const auto x = random_floats(n, 31), y = random_floats(n, 32);
    auto scaled = x, sum = y;
    ours().scale(scaled.data(), -2.5f, n, scaled.data());
    ours().axpy(0.75f, x.data(), n, sum.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(scaled[i], x[i] * -2.5f);
      EXPECT_NEAR(sum[i], y[i] + 0.75 * x[i], 1e-6);
    }
  }
}

// ------------------------------------------------------------------------------------------------------ attention

struct Plane {
  std::vector<std::byte> values;
  std::vector<std::uint16_t> scales;
  KvTile tile;
};

Plane make_plane(const KernelTable& table, DType type, const std::vector<float>& x, int tokens, int dim) {
  Plane plane;
  const KvForm form = kv_form(type);
  const std::size_t row = form.value_bytes(dim), halves = form.scale_bytes(dim) / sizeof(std::uint16_t);
  plane.values.resize(static_cast<std::size_t>(tokens) * row);
  plane.scales.resize(static_cast<std::size_t>(tokens) * halves);
  for (int t = 0; t < tokens; ++t) {
    const auto at = static_cast<std::size_t>(t);
    table.kv_of(type).store(x.data() + t * dim, dim, plane.values.data() + at * row, plane.scales.data() + at * halves);
  }
  plane.tile = {plane.values.data(), form.quantised ? plane.scales.data() : nullptr, tokens, dim};
  return plane;
}

std::vector<DType> kv_types() {
  std::vector<DType> types;
  for (int i = 0; i < kTypeCount; ++i)
    if (type_info(static_cast<DType>(i)).kv_capable) types.push_back(static_cast<DType>(i));
  return types;
}

TEST_P(Vectors, EveryTypeThatMayHoldKvHasKernels) {
  EXPECT_EQ(kv_types().size(), 11u);
  for (int i = 0; i < kTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    const KvKernels& kv = GetParam()->kv_of(type);
    const bool all = kv.qk != nullptr && kv.pv != nullptr && kv.store != nullptr && kv.load != nullptr;
    EXPECT_EQ(all, type_info(type).kv_capable) << type_info(type).id;
  }
}

TEST_P(Vectors, AttentionTilesAgreeWithTheScalarTable) {
  for (const DType type : kv_types()) {
    for (const int dim : {32, 64, 96, 128, 256, 80, 20, 1}) {
      if (dim % type_info(type).block_weights != 0) continue;
      for (const int tokens : {1, 3, 8, 16, 31, 33, 64}) {
        const auto x = random_floats(tokens * dim, 41);
        const Plane ours_plane = make_plane(*GetParam(), type, x, tokens, dim);
        const Plane plane = make_plane(kTableScalar, type, x, tokens, dim);
        ASSERT_EQ(ours_plane.values, plane.values);
        ASSERT_EQ(ours_plane.scales, plane.scales);
        for (const int n_q : {1, 2, 3, 4, 5, 7, 8, 11, 16}) {
          const auto q = random_floats(n_q * (dim + 3), 42);
          std::vector<float> got(static_cast<std::size_t>(n_q * 70), -1), want = got;
          GetParam()->kv_of(type).qk({q.data(), dim + 3, n_q, plane.tile, got.data(), 70});
          kTableScalar.kv_of(type).qk({q.data(), dim + 3, n_q, plane.tile, want.data(), 70});
          expect_close(got, want, 1e-6, 1e-5, "qk");
          const auto p = random_floats(n_q * 70, 43);
          std::vector<float> acc = random_floats(n_q * (dim + 1), 44), acc_want = acc;
          GetParam()->kv_of(type).pv({p.data(), 70, n_q, plane.tile, acc.data(), dim + 1});
          kTableScalar.kv_of(type).pv({p.data(), 70, n_q, plane.tile, acc_want.data(), dim + 1});
          expect_close(acc, acc_want, 1e-6, 1e-5, "pv");
        }
      }
    }
  }
}

TEST_P(Vectors, AttentionReadsTheKeyItIsAskedFor) {
  // One-hot keys: the score of token t is element t of the query.
  const int dim = 64, tokens = 64;
  std::vector<float> keys(dim * tokens, 0.0f);
  for (int t = 0; t < tokens; ++t) keys[static_cast<std::size_t>(t) * (dim + 1)] = 1;
  const auto q = random_floats(dim, 51);
  for (const DType type : kv_types()) {
    if (kv_codes_choose(type)) continue;  // its table has no zero
    const Plane plane = make_plane(*GetParam(), type, keys, tokens, dim);
    std::vector<float> scores(tokens);
    GetParam()->kv_of(type).qk({q.data(), dim, 1, plane.tile, scores.data(), tokens});
    // A one of eight bits is 127 times the half nearest to 1/127, and so on.
    for (int t = 0; t < tokens; ++t)
      EXPECT_NEAR(scores[static_cast<std::size_t>(t)], q[static_cast<std::size_t>(t)], 2e-3);
  }
}

TEST_P(Vectors, KvRowsComeBackAsStored) {
  const auto x = random_floats(128, 61);
  for (const DType type : kv_types()) {
    const Plane plane = make_plane(*GetParam(), type, x, 1, 128);
    std::vector<float> got(128), want(128);
    GetParam()->kv_of(type).load(plane.values.data(), plane.scales.data(), 128, got.data());
    kTableScalar.kv_of(type).load(plane.values.data(), plane.scales.data(), 128, want.data());
    EXPECT_EQ(got, want) << type_info(type).id;
    // A step between codes of values up to three: at the end opposite to the largest magnitude one code is missing.
    const double bound = kv_form(type).bits >= 8 ? 0.02 : 6.0 / (1 << kv_form(type).bits);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(got[i], x[i], bound) << type_info(type).id;
  }
}

TEST_P(Vectors, KvRowsOfExtremesAreThoseOfTheScalarTable) {
  // Rows in which rules meet their edges: zeros, equal magnitudes of both signs, one value alone, a constant, halves
  // between two codes.
  std::vector<std::vector<float>> rows(6, std::vector<float>(64, 0.0f));
  for (std::size_t i = 0; i < 64; ++i) {
    rows[1][i] = i % 2 == 0 ? 3.0f : -3.0f;
    rows[3][i] = -0.25f;
    rows[4][i] = static_cast<float>(i % 32) * 0.5f;
    rows[5][i] = 8.0f - static_cast<float>(i) * 0.25f;
  }
  rows[2][5] = -7.0f;
  for (const DType type : kv_types()) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const Plane ours = make_plane(*GetParam(), type, rows[r], 1, 64);
      const Plane plain = make_plane(kTableScalar, type, rows[r], 1, 64);
      EXPECT_EQ(ours.values, plain.values) << type_info(type).id << ", row " << r;
      EXPECT_EQ(ours.scales, plain.scales) << type_info(type).id << ", row " << r;
    }
  }
}

TEST_P(Vectors, PeakProbeCountsWhatItClaims) {
  EXPECT_GT(GetParam()->int8_peak_ops, 0);
  EXPECT_NE(GetParam()->int8_peak(10), GetParam()->int8_peak(20));
}

INSTANTIATE_TEST_SUITE_P(AllTables, Vectors, testing::ValuesIn(available_tables().begin(), available_tables().end()),
                         [](const auto& p) { return std::string(p.param->name); });

}  // namespace
}  // namespace ggml::cpu
