#include "cpu/kernels/matmul_checker.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "cpu/kernels/act.h"
#include "cpu/kernels/tables.h"
#include "ggml/quant.h"
#include "quant/codec.h"

namespace ggml::cpu::check {
namespace {

constexpr float kUntouched = -12345.0f;

struct Aligned {
  explicit Aligned(std::size_t bytes) : storage(bytes + 64) {}
  std::vector<std::byte> storage;
  [[nodiscard]] std::byte* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(storage.data());
    return storage.data() + (64 - at % 64) % 64;
  }
};

struct Expected {
  double value = 0, magnitude = 0;
};

/// The product of one weight row with one activation row as the rounding rules define it: x is d * q, but a minimum
/// meets the stored block sum (which q8_1 keeps as half).
Expected expect_quantised(DType type, const std::byte* row, std::int64_t k, const ActView& act, std::int64_t m) {
  const quant::WeightCodec& codec = quant::codec(static_cast<int>(type));
  Expected out;
  quant::Piece w;
  for (std::int64_t p = 0; p * kActPiece < k; ++p) {
    const int n = codec.unpack(row, k, p, w);
    const auto& a = *reinterpret_cast<const ActPiece*>(act.data + m * act.row_stride + p * act.piece_stride);
    for (int g = 0; g * 32 < n; ++g) {
      double dot = 0, sum = 0;
      for (int e = 32 * g; e < 32 * g + 32; ++e) {
        const double x = static_cast<double>(a.d[g]) * a.q[e];
        const double product = static_cast<double>(w.scale[e / 16]) * w.code[e] * x;
        dot += product;
        sum += a.q[e];
        out.magnitude += std::fabs(product) + std::fabs(w.add[e / 16] * x);
      }
      const double stored = type_info(type).act == ActType::q8_1 ? static_cast<double>(a.s[g]) : a.d[g] * sum;
      out.value += dot + static_cast<double>(w.add[2 * g]) * stored;
    }
  }
  return out;
}

Expected expect_float(DType type, const std::byte* row, std::int64_t k, const ActView& act, std::int64_t m) {
  std::vector<float> w(static_cast<std::size_t>(k));
  dequantise_row(type, row, k, w.data());
  const auto* x = reinterpret_cast<const float*>(act.data + m * act.row_stride);
  Expected out;
  for (std::int64_t i = 0; i < k; ++i) {
    const double product = static_cast<double>(w[static_cast<std::size_t>(i)]) * static_cast<double>(x[i]);
    out.value += product;
    out.magnitude += std::fabs(product);
  }
  return out;
}

}  // namespace

std::vector<float> random_floats(std::int64_t count, std::uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& v : out) v = normal(random);
  return out;
}

std::vector<std::byte> random_weights(DType type, std::int64_t k, std::int64_t n, std::uint32_t seed) {
  const auto row = row_bytes(type, k);
  std::vector<std::byte> out(row * static_cast<std::size_t>(n));
  for (std::int64_t r = 0; r < n; ++r) {
    const auto x =
        random_floats(k, seed + static_cast<std::uint32_t>(r) * 7919u, 0.02f * static_cast<float>(1 + r % 5));
    quantise_row(type, x, {}, out.data() + static_cast<std::size_t>(r) * row);
  }
  return out;
}

std::string fault_of(const KernelTable& table, const Product& p, double bound) {
  const ActType form = type_info(p.type).act;
  const auto weights = random_weights(p.type, p.k, p.n, p.seed);
  const std::int64_t rows = p.indirect ? p.m + 3 : p.m;
  const auto x = random_floats(rows * p.k, p.seed + 17);
  // The activations come from the scalar table: a fault of the tested table's rounding is another test's business.
  Aligned act_storage(act_bytes(form, p.k, rows)), scratch(matmul_scratch_bytes(p.m));
  const ActView act = act_view(form, act_storage.data(), p.k, rows);
  quantise_act_rows(kTableScalar, form, x.data(), p.k, p.k, act, 0, rows);

  std::vector<std::int32_t> src(static_cast<std::size_t>(p.m)), dst(static_cast<std::size_t>(p.m));
  for (std::int64_t m = 0; m < p.m; ++m) {
    src[static_cast<std::size_t>(m)] = static_cast<std::int32_t>(p.indirect ? (m * 5 + 2) % rows : m);
    dst[static_cast<std::size_t>(m)] = static_cast<std::int32_t>(p.indirect ? rows - 1 - m : m);
  }
  const std::int64_t stride = p.n + 5;
  std::vector<float> out(static_cast<std::size_t>(rows * stride), kUntouched);
  MatmulArgs args;
  args.weights = weights.data();
  args.weight_row_bytes = static_cast<std::int64_t>(row_bytes(p.type, p.k));
  args.k = p.k;
  args.n0 = p.n0;
  args.n1 = p.n;
  args.act = act;
  args.m_rows = p.m;
  if (p.indirect) args.src_rows = src.data(), args.dst_rows = dst.data();
  args.dst = out.data();
  args.dst_row_stride = stride;
  args.scratch = scratch.data();
  table.of(p.type).mul_mat(args);

  std::vector<bool> written(out.size(), false);
  for (std::int64_t m = 0; m < p.m; ++m) {
    for (std::int64_t n = p.n0; n < p.n; ++n) {
      const std::byte* row = weights.data() + n * args.weight_row_bytes;
      const std::int64_t s = src[static_cast<std::size_t>(m)];
      const bool is_float = quant::codec(static_cast<int>(p.type)).unpack == nullptr;
      const Expected want =
          is_float ? expect_float(p.type, row, p.k, act, s) : expect_quantised(p.type, row, p.k, act, s);
      const auto at = static_cast<std::size_t>(dst[static_cast<std::size_t>(m)] * stride + n);
      written[at] = true;
      const double error = std::fabs(static_cast<double>(out[at]) - want.value);
      if (error <= bound * want.magnitude + 1e-30) continue;
      return std::string(table.name) + " " + std::string(type_info(p.type).id) + " k=" + std::to_string(p.k) +
             " n=" + std::to_string(n) + "/" + std::to_string(p.n) + " m=" + std::to_string(m) + "/" +
             std::to_string(p.m) + ": " + std::to_string(out[at]) + " instead of " + std::to_string(want.value) +
             ", off by " + std::to_string(error / want.magnitude) + " of sum |w x|";
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!written[i] && out[i] != kUntouched) {
      return std::string(table.name) + " wrote where it should not, at " + std::to_string(i);
    }
  }
  return {};
}

}  // namespace ggml::cpu::check
