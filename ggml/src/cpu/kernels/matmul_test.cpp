#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/kernels/act.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/matmul_checker.h"
#include "cpu/kernels/tables.h"
#include "ggml/error.h"
#include "ggml/quant.h"
#include "quant/golden.h"

namespace ggml::cpu {
namespace {

using check::fault_of;

struct Case {
  const KernelTable* table;
  DType type;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const KernelTable* table : available_tables()) {
    for (int t = 0; t < kTypeCount; ++t) {
      if (is_weight_type(static_cast<DType>(t))) out.push_back({table, static_cast<DType>(t)});
    }
  }
  return out;
}

/// Lengths of rows that try every tail: whole pieces, blocks that do not fill one, single elements where legal.
std::vector<std::int64_t> lengths(DType type) {
  const std::int64_t block = type_info(type).block_weights;
  if (block == 1) return {1, 2, 7, 15, 16, 17, 31, 33, 64, 255, 256, 257, 3 * 256 + 5};
  if (block == 256) return {256, 512, 3 * 256};
  std::vector<std::int64_t> out;
  for (const std::int64_t blocks : {1, 2, 3, 7, 8, 9, 16, 27}) out.push_back(blocks * block);
  return out;
}

class Kernels : public testing::TestWithParam<Case> {};

TEST_P(Kernels, HaveAFunctionForEveryWeightType) {
  const TypeKernels& kernels = GetParam().table->of(GetParam().type);
  EXPECT_NE(kernels.mul_mat, nullptr);
  EXPECT_EQ(kernels.dequantise_row != nullptr, type_info(GetParam().type).rows_per_group == 1);
}

TEST_P(Kernels, MultiplyRowsOfEveryLength) {
  for (const std::int64_t k : lengths(GetParam().type)) {
    for (const std::int64_t m : {1, 2, 3, 9}) {
      EXPECT_EQ(fault_of(*GetParam().table, {.type = GetParam().type, .k = k, .n = 5, .m = m}), "");
    }
  }
}

/// Longer than the scratch holds activations of, and the last piece short.
TEST_P(Kernels, MultiplyLongRows) {
  const std::int64_t block = type_info(GetParam().type).block_weights;
  if (block == 1 || block == 256) return;
  EXPECT_EQ(fault_of(*GetParam().table, {.type = GetParam().type, .k = 195 * 128, .n = 3, .m = 1}), "");
}

TEST_P(Kernels, MultiplyBatchesOfEverySize) {
  const std::int64_t block = type_info(GetParam().type).block_weights;
  const std::int64_t k = block == 256 ? 512 : block > 32 ? 384 : 288;
  for (std::int64_t m = 1; m <= 16; ++m) {
    EXPECT_EQ(fault_of(*GetParam().table, {.type = GetParam().type, .k = k, .n = 35, .m = m}), "");
  }
  for (const std::int64_t m : {33, 512, 515}) {
    EXPECT_EQ(fault_of(*GetParam().table, {.type = GetParam().type, .k = k, .n = 17, .m = m}), "");
  }
}

TEST_P(Kernels, MultiplyPartsOfTheRows) {
  for (const std::int64_t n : {1, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65}) {
    for (const std::int64_t m : {1, 12}) {
      EXPECT_EQ(fault_of(*GetParam().table, {.type = GetParam().type, .k = 256, .n = n, .m = m}), "");
      EXPECT_EQ(fault_of(*GetParam().table, {.type = GetParam().type, .k = 256, .n = n + 3, .m = m, .n0 = 3}), "");
    }
  }
}

TEST_P(Kernels, GatherAndScatterRows) {
  for (const std::int64_t m : {1, 2, 5, 8, 9, 40}) {
    EXPECT_EQ(fault_of(*GetParam().table, {.type = GetParam().type, .k = 512, .n = 20, .m = m, .indirect = true}), "");
  }
}

TEST_P(Kernels, DecodeRowsAsThePlainCodecDoes) {
  if (GetParam().table->of(GetParam().type).dequantise_row == nullptr) return;  // interleaved
  for (const std::int64_t k : lengths(GetParam().type)) {
    const auto row = check::random_weights(GetParam().type, k, 1, 11);
    std::vector<float> want(static_cast<std::size_t>(k)), got(static_cast<std::size_t>(k));
    dequantise_row(GetParam().type, row.data(), k, want.data());
    GetParam().table->of(GetParam().type).dequantise_row(row.data(), k, got.data());
    ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << "row of " << k;
  }
}

TEST_P(Kernels, DecodeTheGoldenRowsBitForBit) {
  const auto decode = GetParam().table->of(GetParam().type).dequantise_row;
  if (decode == nullptr) return;  // interleaved
  const std::string id(type_info(GetParam().type).id);
  for (const char* which : {"plain", "edge", "random"}) {
    const auto want = golden::row_hashes(id, which);
    if (want.empty()) continue;
    const auto q = golden::bytes(id + "." + which + ".q.npy");
    const auto row = row_bytes(GetParam().type, golden::kCols);
    std::vector<float> got(golden::kCols);
    for (std::int64_t r = 0; r < golden::kRows; ++r) {
      decode(q.data() + r * static_cast<std::int64_t>(row), golden::kCols, got.data());
      ASSERT_EQ(golden::row_hash(got.data(), golden::kCols), want[static_cast<std::size_t>(r)])
          << which << " row " << r;
    }
  }
}

/// The dot products that the reference's integer kernels compute, on ordinary, extreme and random rows.
TEST_P(Kernels, GiveTheGoldenDotProducts) {
  const DType type = GetParam().type;
  const ActType form = type_info(type).act;
  const std::string id(type_info(type).id);
  const auto x = golden::floats("dot_vector.npy");
  alignas(64) std::byte act_storage[4096];
  alignas(64) static std::byte scratch[512 * 1024];
  ASSERT_LE(act_bytes(form, golden::kCols, 1), sizeof(act_storage));
  ASSERT_LE(matmul_scratch_bytes(12), sizeof(scratch));
  const ActView act = act_view(form, act_storage, golden::kCols, 1);
  quantise_act_rows(*GetParam().table, form, x.data(), golden::kCols, golden::kCols, act, 0, 1);
  const std::vector<std::int32_t> same(12, 0), places{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  for (const char* which : {"plain", "edge", "random"}) {
    const std::string key = form == ActType::q8_k ? "dot_q8_k" : form == ActType::f32 ? "dot" : "dot_q8_0";
    const auto want = golden::expected(id, which, key);
    if (want.empty() || form == ActType::f16 || form == ActType::bf16) continue;
    const auto q = golden::bytes(id + "." + which + ".q.npy");
    for (const std::int64_t m : {1, 12}) {
      std::vector<float> got(12 * golden::kRows);
      MatmulArgs args;
      args.weights = q.data();
      args.weight_row_bytes = static_cast<std::int64_t>(row_bytes(type, golden::kCols));
      args.k = golden::kCols;
      args.n1 = golden::kRows;
      args.act = act;
      args.m_rows = m;
      args.src_rows = same.data();
      args.dst_rows = places.data();
      args.dst = got.data();
      args.dst_row_stride = golden::kRows;
      args.scratch = scratch;
      GetParam().table->of(type).mul_mat(args);
      std::vector<float> w(golden::kCols);
      for (std::int64_t r = 0; r < golden::kRows; ++r) {
        dequantise_row_of(type, q.data(), r, golden::kCols, w.data());
        double magnitude = 0;
        for (std::size_t i = 0; i < w.size(); ++i) magnitude += std::fabs(static_cast<double>(w[i]) * x[i]);
        constexpr double bound = 1e-5;
        for (std::int64_t i = 0; i < m; ++i) {
          ASSERT_NEAR(got[static_cast<std::size_t>(i * golden::kRows + r)], want[static_cast<std::size_t>(r)],
                      bound * magnitude + 1e-30)
              << id << " " << which << " row " << r << " of " << m;
        }
      }
    }
  }
}

TEST_P(Kernels, SurviveHostileBlocks) {
  const DType type = GetParam().type;
  const std::int64_t k = 512, n = 16;
  const auto row = row_bytes(type, k);
  alignas(64) static std::byte act_storage[16 * 4096], scratch[512 * 1024];
  const ActType form = type_info(type).act;
  const ActView act = act_view(form, act_storage, k, 12);
  const float inf = std::numeric_limits<float>::infinity();
  for (const int filler : {0x00, 0xff, 0x7f, 0x80, 0x7c, 0x55}) {
    const std::vector<std::byte> w(row * n, static_cast<std::byte>(filler));
    for (const float value : {0.0f, 1.0f, inf, -inf, std::nanf(""), 1e-42f, 3e38f}) {
      std::vector<float> x(static_cast<std::size_t>(12 * k), value);
      x[3] = 1;
      quantise_act_rows(*GetParam().table, form, x.data(), k, k, act, 0, 12);
      for (const std::int64_t m : {1, 4, 12}) {
        std::vector<float> out(static_cast<std::size_t>(12 * n));
        MatmulArgs args;
        args.weights = w.data();
        args.weight_row_bytes = static_cast<std::int64_t>(row);
        args.k = k;
        args.n1 = n;
        args.act = act;
        args.m_rows = m;
        args.dst = out.data();
        args.dst_row_stride = n;
        args.scratch = scratch;
        GetParam().table->of(type).mul_mat(args);
        if (filler == 0 && value == 1.0f) {
          for (const float v : out) EXPECT_EQ(v, 0.0f);
        }
      }
    }
  }
}

/// Where every code is at its end and has the sign that makes sums grow, nothing may saturate.
TEST_P(Kernels, DoNotSaturate) {
  const DType type = GetParam().type;
  const std::int64_t k = 512;
  for (const float sign : {1.0f, -1.0f}) {
    // A block that reaches both ends of the codes, the rest of it at one end.
    std::vector<float> x(static_cast<std::size_t>(k), sign);
    for (std::size_t i = 0; i < x.size(); i += 32) x[i] = -sign;
    const auto together = static_cast<std::size_t>(type_info(type).rows_per_group);
    std::vector<float> rows;
    for (std::size_t r = 0; r < together; ++r) rows.insert(rows.end(), x.begin(), x.end());
    std::vector<std::byte> w(row_bytes(type, k) * together);
    quantise_rows(type, rows, k, {}, w.data());
    std::vector<float> decoded(static_cast<std::size_t>(k));
    dequantise_row_of(type, w.data(), 0, k, decoded.data());
    alignas(64) static std::byte act_storage[16 * 4096], scratch[512 * 1024];
    const ActType form = type_info(type).act;
    const ActView act = act_view(form, act_storage, k, 12);
    const std::vector<float> ones(static_cast<std::size_t>(12 * k), 1.0f);
    quantise_act_rows(*GetParam().table, form, ones.data(), k, k, act, 0, 12);
    double want = 0;
    for (const float v : decoded) want += v;
    for (const std::int64_t m : {1, 12}) {
      std::vector<float> out(12);
      MatmulArgs args;
      args.weights = w.data();
      args.weight_row_bytes = static_cast<std::int64_t>(row_bytes(type, k));
      args.k = k;
      args.n1 = 1;
      args.act = act;
      args.m_rows = m;
      args.dst = out.data();
      args.dst_row_stride = 1;
      args.scratch = scratch;
      GetParam().table->of(type).mul_mat(args);
      // 127 times the half of 1/127 is off by up to 2^-11; the table of IQ6_K is the rounded form of its decoder.
      const double bound = type == DType::iq6_k ? 1e-2 : 1e-3;
      for (std::int64_t i = 0; i < m; ++i) EXPECT_NEAR(out[static_cast<std::size_t>(i)], want, bound * k);
    }
  }
}

TEST_P(Kernels, FuseGateAndUp) {
  const DType type = GetParam().type;
  const KernelTable& table = *GetParam().table;
  const std::int64_t k = 256, n = 45;
  const ActType form = type_info(type).act;
  const auto gate = check::random_weights(type, k, n, 3), up = check::random_weights(type, k, n, 4);
  for (const std::int64_t m : {1, 3, 20}) {
    std::vector<std::byte> storage(act_bytes(form, k, m) + 64), scratch_storage(gate_up_scratch_bytes(m) + 64);
    const auto aligned = [](std::vector<std::byte>& v) {
      return v.data() + (64 - reinterpret_cast<std::uintptr_t>(v.data()) % 64) % 64;
    };
    const ActView act = act_view(form, aligned(storage), k, m);
    const auto x = check::random_floats(m * k, 5);
    quantise_act_rows(table, form, x.data(), k, k, act, 0, m);
    MatmulArgs product;
    product.weights = gate.data();
    product.weight_row_bytes = static_cast<std::int64_t>(row_bytes(type, k));
    product.k = k;
    product.n1 = n;
    product.act = act;
    product.m_rows = m;
    product.dst_row_stride = n;
    product.scratch = aligned(scratch_storage);
    std::vector<float> g(static_cast<std::size_t>(m * n)), u = g, fused = g, want = g;
    product.dst = g.data();
    table.of(type).mul_mat(product);
    product.weights = up.data();
    product.dst = u.data();
    table.of(type).mul_mat(product);
    table.vec.silu_mul(g.data(), u.data(), m * n, want.data());
    product.weights = gate.data();
    product.dst = fused.data();
    gate_up(table, {product, type, up.data(), product.weight_row_bytes, type, GluOp::silu});
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_FLOAT_EQ(fused[i], want[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(AllTables, Kernels, testing::ValuesIn(cases()), [](const auto& p) {
  return std::string(p.param.table->name) + "_" + std::string(type_info(p.param.type).id);
});

// --------------------------------------------------------------------------------------------------- the checker

void zeros(const MatmulArgs& a) noexcept {
  for (std::int64_t m = 0; m < a.m_rows; ++m) {
    const std::int64_t row = a.dst_rows != nullptr ? a.dst_rows[m] : m;
    for (std::int64_t n = a.n0; n < a.n1; ++n) a.dst[row * a.dst_row_stride + n] = 0;
  }
}

TEST(Checker, NoticesAKernelThatWritesZeros) {
  for (const Case& c : cases()) {
    KernelTable mutant = *c.table;
    mutant.types[static_cast<std::size_t>(c.type)].mul_mat = zeros;
    EXPECT_NE(fault_of(mutant, {.type = c.type, .k = 256, .n = 4, .m = 2}), "");
  }
}

TEST(Checker, NoticesTheKernelOfANeighbourType) {
  for (const Case& c : cases()) {
    for (int t = 0; t < kTypeCount; ++t) {
      const auto other = static_cast<DType>(t);
      // A type with smaller blocks and the same kind of activations can run on the bytes without leaving them.
      if (other == c.type || !is_weight_type(other) || type_info(other).act != type_info(c.type).act) continue;
      if (row_bytes(other, 256) > row_bytes(c.type, 256)) continue;
      if (type_info(other).rows_per_group > type_info(c.type).rows_per_group) continue;  // it would read further rows
      KernelTable mutant = *c.table;
      mutant.types[static_cast<std::size_t>(c.type)].mul_mat = c.table->of(other).mul_mat;
      for (const std::int64_t m : {1, 12}) {
        EXPECT_NE(fault_of(mutant, {.type = c.type, .k = 256, .n = 4, .m = m}), "")
            << c.table->name << ": " << type_info(other).id << " passed for " << type_info(c.type).id;
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------- the activations

class Rounding : public testing::TestWithParam<const KernelTable*> {};

TEST_P(Rounding, OfActivationsAgreesWithTheScalarTable) {
  for (const ActType form : {ActType::f32, ActType::f16, ActType::bf16, ActType::q8_0, ActType::q8_1, ActType::q8_k}) {
    for (const char* name : {"main", "edge"}) {
      const auto x = golden::input(name);
      const auto size = act_bytes(form, golden::kCols, golden::kRows);
      std::vector<std::byte> a(size), b(size);
      const ActView va = act_view(form, a.data(), golden::kCols, golden::kRows);
      const ActView vb = act_view(form, b.data(), golden::kCols, golden::kRows);
      quantise_act_rows(kTableScalar, form, x.data(), golden::kCols, golden::kCols, va, 0, golden::kRows);
      quantise_act_rows(*GetParam(), form, x.data(), golden::kCols, golden::kCols, vb, 0, golden::kRows);
      for (std::size_t i = 0; i < size; i += 4) {  // by float, as a zero may have either sign
        float fa, fb;
        std::memcpy(&fa, a.data() + i, 4);
        std::memcpy(&fb, b.data() + i, 4);
        ASSERT_TRUE(std::bit_cast<std::uint32_t>(fa) == std::bit_cast<std::uint32_t>(fb) || fa == fb)
            << static_cast<int>(form) << " " << name << " at " << i;
      }
    }
  }
}

/// q8_0 and q8_1: the reference's bytes but for ties and the last place of the inverse scale; q8_k exactly.
TEST_P(Rounding, OfActivationsIsTheReferences) {
  struct Form {
    ActType type;
    const char* name;
    int block, bytes, d_bytes, q_at;
  };
  for (const Form& f : {Form{ActType::q8_0, "q8_0", 32, 34, 2, 2}, Form{ActType::q8_1, "q8_1", 32, 36, 2, 4},
                        Form{ActType::q8_k, "q8_k", 256, 292, 4, 4}}) {
    for (const char* name : {"main", "edge"}) {
      const auto x = golden::input(name);
      const auto want =
          golden::bytes(std::string("act_") + f.name + (name == std::string("main") ? ".plain" : ".edge") + ".q.npy");
      std::vector<std::byte> buffer(act_bytes(f.type, golden::kCols, golden::kRows));
      const ActView view = act_view(f.type, buffer.data(), golden::kCols, golden::kRows);
      quantise_act_rows(*GetParam(), f.type, x.data(), golden::kCols, golden::kCols, view, 0, golden::kRows);
      int different = 0;
      for (std::int64_t e = 0; e < golden::kRows * golden::kCols; ++e) {
        const std::int64_t row = e / golden::kCols, col = e % golden::kCols;
        const auto& piece =
            *reinterpret_cast<const ActPiece*>(view.data + row * view.row_stride + col / kActPiece * view.piece_stride);
        const std::byte* block = want.data() + e / f.block * f.bytes;
        float d = 0;
        if (f.d_bytes == 4) {
          std::memcpy(&d, block, 4);
        } else {
          std::uint16_t half = 0;
          std::memcpy(&half, block, 2);
          d = f16_to_f32(half);
        }
        ASSERT_EQ(piece.d[col % kActPiece / 32], d) << f.name << " " << name << " element " << e;
        const auto q = static_cast<int>(static_cast<std::int8_t>(block[f.q_at + e % f.block]));
        const auto got = static_cast<int>(piece.q[col % kActPiece]);
        ASSERT_LE(std::abs(got - q), f.type == ActType::q8_k ? 0 : 1) << f.name << " " << name << " element " << e;
        different += got != q ? 1 : 0;
      }
      EXPECT_LE(different, golden::kRows * golden::kCols / 100) << f.name << " " << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTables, Rounding, testing::ValuesIn(available_tables().begin(), available_tables().end()),
                         [](const auto& p) { return std::string(p.param->name); });

// ------------------------------------------------------------------------------------------------------- selection

TEST(Selection, PutsTheScalarReferenceLast) {
  ASSERT_FALSE(available_tables().empty());
  EXPECT_STREQ(available_tables().back()->name, "scalar");
  EXPECT_EQ(&select_table(""), available_tables().front());
}

TEST(Selection, FindsForcedTablesByName) {
  for (const KernelTable* table : available_tables()) EXPECT_EQ(&select_table(table->name), table);
}

TEST(Selection, NamesWhatIsThereWhenItIsAskedForSomethingElse) {
  try {
    (void)select_table("mmx");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("mmx"), std::string::npos);
    EXPECT_NE(error.hint().find("scalar"), std::string::npos);
  }
}

}  // namespace
}  // namespace ggml::cpu
