// The scalar reference: plain loops over the plain codecs, sums in double. Tests trust it; nothing fast is derived from
// it, and it is derived from nothing fast.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/kernels/act.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tables.h"
#include "ggml/kv_rows.h"
#include "ggml/quant.h"
#include "quant/codec.h"

namespace ggml::cpu {
namespace {

using quant::codec;

constexpr int kGroup = 32;

#include "cpu/kernels/scalar/vec.inc"

[[nodiscard]] const ActPiece& piece_of(const ActView& act, std::int64_t row, std::int64_t piece) {
  return *reinterpret_cast<const ActPiece*>(act.data + row * act.row_stride + piece * act.piece_stride);
}

/// One piece of a weight row with one of activations. Integers within a group are exact, as in every other table.
double dot_piece(const quant::Piece& w, const ActPiece& a, int n, bool sums_lack_scale) {
  double total = 0;
  for (int t = 0; t < n / quant::kGroup; ++t) {
    int dot = 0;
    for (int i = 0; i < quant::kGroup; ++i) dot += w.code[t * quant::kGroup + i] * a.q[t * quant::kGroup + i];
    total += static_cast<double>(w.scale[t]) * static_cast<double>(a.d[t / 2]) * dot;
  }
  // The form of 256 has its sums per 16 and without the scale, the others have them per 32.
  for (int t = 0; t < n / quant::kGroup; ++t) {
    if (w.add[t] == 0 || (!sums_lack_scale && t % 2 != 0)) continue;
    const double sum = sums_lack_scale ? a.zsum[t] * (-1.0 / kZeroPoint) * static_cast<double>(a.d[t / 2]) : a.s[t / 2];
    total += static_cast<double>(w.add[t]) * sum;
  }
  return total;
}

template <DType T>
void mul_mat(const MatmulArgs& args) noexcept {
  const quant::WeightCodec& weights = codec(static_cast<int>(T));
  const bool q8_k = type_info(T).act == ActType::q8_k;
  const std::int64_t together = type_info(T).rows_per_group;
  quant::Piece piece;
  float floats[kActPiece];
  for (std::int64_t n = args.n0; n < args.n1; ++n) {
    const std::byte* group = args.weights + (n - n % together) * args.weight_row_bytes;
    const int row = static_cast<int>(n % together);
    for (std::int64_t m = 0; m < args.m_rows; ++m) {
      const std::int64_t src = args.src_rows != nullptr ? args.src_rows[m] : m;
      const std::int64_t dst = args.dst_rows != nullptr ? args.dst_rows[m] : m;
      double total = 0;
      for (std::int64_t k = 0; k < args.k; k += kActPiece) {
        const int count = static_cast<int>(std::min<std::int64_t>(kActPiece, args.k - k));
        if (weights.unpack != nullptr) {
          weights.unpack(group, row, args.k, k / kActPiece, piece);
          total += dot_piece(piece, piece_of(args.act, src, k / kActPiece), count, q8_k);
        } else {
          const auto* x = reinterpret_cast<const float*>(args.act.data + src * args.act.row_stride) + k;
          weights.dequantise(group + k / type_info(T).block_weights * type_info(T).block_bytes * together, row, count,
                             floats);
          for (int i = 0; i < count; ++i) total += static_cast<double>(floats[i]) * static_cast<double>(x[i]);
        }
      }
      args.dst[dst * args.dst_row_stride + n] = static_cast<float>(total);
    }
  }
}

template <DType T>
void dequantise_row(const std::byte* row, std::int64_t k, float* dst) noexcept {
  codec(static_cast<int>(T)).dequantise(row, 0, k, dst);
}

// -------------------------------------------------------------------------------------------------- activations

/// Rounds to nearest even and saturates to a byte; NaN becomes what the vector conversion makes of it.
[[nodiscard]] std::int8_t to_byte(float v) {
  if (!(v < 128)) return v == v ? 127 : -128;
  return static_cast<std::int8_t>(std::nearbyint(std::max(v, -128.0f)));
}

void quantise_group(const float* x, int n, float scale, std::int8_t* q) {
  for (int i = 0; i < n; ++i) q[i] = to_byte(x[i] * scale);
}

[[nodiscard]] int sum_of(const std::int8_t* q, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += q[i];
  return sum;
}

template <bool kHalfSum>
void quantise_act_q8_32(const float* src, std::int64_t k, const ActView& dst, std::int64_t row) noexcept {
  for (std::int64_t at = 0; at < k; at += kActPiece) {
    auto& a = *reinterpret_cast<ActPiece*>(dst.data + row * dst.row_stride + at / kActPiece * dst.piece_stride);
    a = ActPiece{};
    for (int g = 0; g < 8 && at + kGroup * g < k; ++g) {
      const float* x = src + at + kGroup * g;
      float most = 0;
      for (int i = 0; i < kGroup; ++i) most = std::max(most, std::fabs(x[i]));
      const float d = most / 127;
      quantise_group(x, kGroup, most != 0 ? 127 / most : 0, a.q + kGroup * g);
      const int sum = sum_of(a.q + kGroup * g, kGroup);
      a.d[g] = f16_to_f32(f32_to_f16(d));
      const auto total = static_cast<float>(sum);
      a.s[g] = kHalfSum ? f16_to_f32(f32_to_f16(d * total)) : a.d[g] * total;
      a.zsum[g] = -kZeroPoint * sum;
    }
  }
}

void quantise_act_q8_k(const float* src, std::int64_t k, const ActView& dst, std::int64_t row) noexcept {
  for (std::int64_t at = 0; at < k; at += kActPiece) {
    auto& a = *reinterpret_cast<ActPiece*>(dst.data + row * dst.row_stride + at / kActPiece * dst.piece_stride);
    const float* x = src + at;
    float extreme = 0;
    for (int i = 0; i < kActPiece; ++i) {
      if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
    }
    const float inverse = extreme != 0 ? -127 / extreme : 0;
    quantise_group(x, kActPiece, inverse, a.q);
    for (int g = 0; g < 8; ++g) {
      a.d[g] = extreme != 0 ? 1 / inverse : 0;
      a.s[g] = static_cast<float>(sum_of(a.q + 32 * g, 32));
      a.zsum[2 * g] = -kZeroPoint * sum_of(a.q + 32 * g, 16);
      a.zsum[2 * g + 1] = -kZeroPoint * sum_of(a.q + 32 * g + 16, 16);
    }
  }
}

template <ActType A>
void quantise_act_float(const float* src, std::int64_t k, const ActView& dst, std::int64_t row) noexcept {
  auto* out = reinterpret_cast<float*>(dst.data + row * dst.row_stride);
  for (std::int64_t i = 0; i < k; ++i) {
    out[i] = A == ActType::f16    ? f16_to_f32(f32_to_f16(src[i]))
             : A == ActType::bf16 ? bf16_to_f32(f32_to_bf16(src[i]))
                                  : src[i];
  }
  for (std::int64_t i = k; i % 16 != 0; ++i) out[i] = 0;
}

// ---------------------------------------------------------------------------------------------------- attention

template <DType T>
void load_kv(const std::byte* values, const std::uint16_t* scales, int dim, float* dst) noexcept {
  decode_kv_row(T, values, reinterpret_cast<const std::byte*>(scales), 0, dim, dst);
}

template <DType T>
void store_kv(const float* src, int dim, std::byte* values, std::uint16_t* scales) noexcept {
  encode_kv_row(T, src, dim, values, reinterpret_cast<std::byte*>(scales));
}

/// Elements [d, d + n) of token t, at most 32 of them.
template <DType T>
void kv_piece(const KvTile& tile, int t, int d, int n, float* out) {
  const KvForm form = kv_form(T);
  const auto token = static_cast<std::size_t>(t);
  decode_kv_row(T, tile.values + token * form.value_bytes(tile.dim),
                reinterpret_cast<const std::byte*>(tile.scales) + token * form.scale_bytes(tile.dim), d, n, out);
}

template <DType T>
void qk(const QkArgs& a) noexcept {
  for (int i = 0; i < a.n_q; ++i) {
    for (int t = 0; t < a.k.n_tokens; ++t) {
      double sum = 0;
      for (int d = 0; d < a.k.dim; d += kKvGroup) {
        const int n = std::min(kKvGroup, a.k.dim - d);
        float piece[kKvGroup];
        kv_piece<T>(a.k, t, d, n, piece);
        const float* q = a.q + i * a.q_stride + d;
        for (int j = 0; j < n; ++j) sum += static_cast<double>(q[j]) * static_cast<double>(piece[j]);
      }
      a.scores[i * a.scores_stride + t] = static_cast<float>(sum);
    }
  }
}

template <DType T>
void pv(const PvArgs& a) noexcept {
  for (int i = 0; i < a.n_q; ++i) {
    for (int d = 0; d < a.v.dim; d += kKvGroup) {
      const int n = std::min(kKvGroup, a.v.dim - d);
      double sums[kKvGroup];
      for (int j = 0; j < n; ++j) sums[j] = a.acc[i * a.acc_stride + d + j];
      for (int t = 0; t < a.v.n_tokens; ++t) {
        const double p = a.p[i * a.p_stride + t];
        float piece[kKvGroup];
        kv_piece<T>(a.v, t, d, n, piece);
        for (int j = 0; j < n; ++j) sums[j] += p * static_cast<double>(piece[j]);
      }
      for (int j = 0; j < n; ++j) a.acc[i * a.acc_stride + d + j] = static_cast<float>(sums[j]);
    }
  }
}

template <DType T, bool MayHoldKv>
constexpr KvKernels kv_kernels_of() {
  if constexpr (MayHoldKv && kHasAttention) return {qk<T>, pv<T>, store_kv<T>, load_kv<T>};
  return {};
}

// ------------------------------------------------------------------------------------------------------- the table

std::int64_t int8_peak(std::int64_t iterations) noexcept {
  std::int32_t sum[4] = {};
  volatile std::int8_t w = 3, q = 5;
  for (std::int64_t i = 0; i < iterations; ++i) {
    for (std::int32_t& s : sum) s += w * q;
  }
  return static_cast<std::int64_t>(sum[0]) + sum[1] + sum[2] + sum[3];
}

std::uint64_t stream_read(const std::byte* data, std::size_t bytes) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, 8);
    sum ^= word;
  }
  return sum;
}

/// The types that multiply are those with an activation form of blocks or of their own.
constexpr bool is_weight(DType type) {
  return type != DType::i8 && type != DType::i16 && type != DType::i32 && type != DType::i64 && type != DType::f64;
}

constexpr KernelTable make_table() {
  KernelTable table;
  table.name = "scalar";
  table.description = "plain C++, the reference";
#define QTYPE(id, num, name, weights, bytes, header, rows, trailer, kv_ok, act)                          \
  if (is_weight(DType::id)) {                                                                            \
    table.types[static_cast<std::size_t>(DType::id)] = {rows == 1 ? dequantise_row<DType::id> : nullptr, \
                                                        mul_mat<DType::id>};                             \
  }                                                                                                      \
  table.kv[static_cast<std::size_t>(DType::id)] = kv_kernels_of<DType::id, kv_ok>();
#include "quant/types.def"
#undef QTYPE
  table.quantise_act[static_cast<std::size_t>(ActType::f32)] = quantise_act_float<ActType::f32>;
  table.quantise_act[static_cast<std::size_t>(ActType::f16)] = quantise_act_float<ActType::f16>;
  table.quantise_act[static_cast<std::size_t>(ActType::bf16)] = quantise_act_float<ActType::bf16>;
  table.quantise_act[static_cast<std::size_t>(ActType::q8_0)] = quantise_act_q8_32<false>;
  table.quantise_act[static_cast<std::size_t>(ActType::q8_1)] = quantise_act_q8_32<true>;
  table.quantise_act[static_cast<std::size_t>(ActType::q8_k)] = quantise_act_q8_k;
  table.vec = scalar_vec_kernels();
  table.int8_peak = int8_peak;
  table.int8_peak_ops = 8;
  table.stream_read = {stream_read, stream_read, stream_read};
  return table;
}

}  // namespace

constexpr KernelTable kTableScalarValue = make_table();
const KernelTable kTableScalar = kTableScalarValue;

}  // namespace ggml::cpu
