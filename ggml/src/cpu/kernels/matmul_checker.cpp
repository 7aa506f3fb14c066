#include "cpu/kernels/matmul_checker.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <tuple>

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

/// One row of weights, taken apart once for all the activation rows that it meets.
class WeightRow {
 public:
  WeightRow(DType type, const std::byte* matrix, std::int64_t row, std::int64_t k)
      : k_(k), half_sums_(type_info(type).act == ActType::q8_1) {
    const quant::WeightCodec& codec = quant::codec(static_cast<int>(type));
    if (codec.unpack == nullptr) {
      values_.resize(static_cast<std::size_t>(k));
      dequantise_row_of(type, matrix, row, k, values_.data());
      return;
    }
    const std::int64_t together = type_info(type).rows_per_group;
    const std::byte* group = matrix + (row - row % together) * static_cast<std::int64_t>(row_bytes(type, k));
    pieces_.resize(static_cast<std::size_t>((k + kActPiece - 1) / kActPiece));
    std::int64_t p = 0;
    for (Piece& piece : pieces_) piece.n = codec.unpack(group, static_cast<int>(row % together), k, p++, piece.w);
  }

  /// Its product with row `m`, as the rounding rules define it.
  [[nodiscard]] Expected times(const ActView& act, std::int64_t m) const {
    return values_.empty() ? times_quantised(act, m) : times_floats(act, m);
  }

 private:
  struct Piece {
    quant::Piece w;
    int n = 0;
  };

  /// x is d * q, but a minimum meets the stored block sum (which q8_1 keeps as half).
  [[nodiscard]] Expected times_quantised(const ActView& act, std::int64_t m) const {
    Expected out;
    const std::byte* at = act.data + m * act.row_stride;
    for (const auto& [w, n] : pieces_) {
      const auto& a = *reinterpret_cast<const ActPiece*>(at);
      at += act.piece_stride;
      for (int e = 0; e < n; ++e) {
        const double x = static_cast<double>(a.d[e / 32]) * a.q[e];
        const double product = static_cast<double>(w.scale[e / 16]) * w.code[e] * x;
        const double minimum = static_cast<double>(w.add[e / 16]) * x;
        out.value += half_sums_ ? product : product + minimum;
        out.magnitude += std::fabs(product) + std::fabs(minimum);
      }
      for (int g = 0; half_sums_ && g * 32 < n; ++g) out.value += static_cast<double>(w.add[2 * g]) * a.s[g];
    }
    return out;
  }

  [[nodiscard]] Expected times_floats(const ActView& act, std::int64_t m) const {
    const auto* x = reinterpret_cast<const float*>(act.data + m * act.row_stride);
    Expected out;
    for (std::int64_t i = 0; i < k_; ++i) {
      const double product = static_cast<double>(values_[static_cast<std::size_t>(i)]) * static_cast<double>(x[i]);
      out.value += product;
      out.magnitude += std::fabs(product);
    }
    return out;
  }

  const std::int64_t k_;
  const bool half_sums_;
  std::vector<Piece> pieces_;  // empty: the type has no codes
  std::vector<float> values_;
};

}  // namespace

std::vector<float> random_floats(std::int64_t count, std::uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& v : out) v = normal(random);
  return out;
}

std::vector<std::byte> random_weights(DType type, std::int64_t k, std::int64_t n, std::uint32_t seed) {
  const TypeInfo& info = type_info(type);
  // The searches of some types are slow: what was encoded once is kept, and longer tensors begin with shorter ones.
  static std::map<std::tuple<DType, std::int64_t, std::uint32_t>, std::vector<std::byte>> made;
  std::vector<std::byte>& all = made[{type, k, seed}];
  const auto row = row_bytes(type, k);
  const std::int64_t together = info.rows_per_group, wanted = (n + together - 1) / together * together;
  std::vector<float> x(static_cast<std::size_t>(together * k));
  for (auto r = static_cast<std::int64_t>(all.size() / row); r < wanted; r += together) {
    for (std::int64_t i = 0; i < together; ++i) {
      const auto values = random_floats(k, seed + static_cast<std::uint32_t>(r + i) * 7919u,
                                        0.02f * static_cast<float>(1 + (r + i) % 5));
      std::copy(values.begin(), values.end(), x.begin() + i * k);
    }
    all.resize(all.size() + row * static_cast<std::size_t>(together));
    quantise_rows(type, x, k, {}, all.data() + static_cast<std::size_t>(r) * row);
  }
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(wanted))};
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
  for (std::int64_t n = p.n0; n < p.n; ++n) {
    const WeightRow row(p.type, weights.data(), n, p.k);
    for (std::int64_t m = 0; m < p.m; ++m) {
      const Expected want = row.times(act, src[static_cast<std::size_t>(m)]);
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
