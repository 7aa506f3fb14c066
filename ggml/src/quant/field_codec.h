#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "ggml/quant.h"
#include "quant/codec.h"
#include "quant/fields.h"

/// Builds a WeightCodec from a format that describes its block as fields:
///   using F = Fields<kWeights>;
///   static constexpr int kWeights, kBytes;         weights and bytes of one row's block
///   static constexpr int kHeader, kRows;           bytes of a row's header (0, 2: f16, 4: f32, 8: f32 and the sum of
///   the
///                                                  codes), rows of a group
///   static constexpr int kReach, kGroup;           largest magnitude of a code, weights that share a scale (16 or 32)
///   static constexpr bool kHasMin, kPlusZero;      whether add is more than zero; or is added though it is zero, as
///   the
///                                                  reference does, which makes every zero positive
///   layout(io, row, f)                             where the fields of row `row` of a group block lie
///   values(f, d, code, scale, add)                 the weights; d is the row's header
///   sane(f)                                        no NaN or infinity in the block's scales
///   encode(x, w, k, fields) -> float               a row of k / kWeights blocks; w may be null; returns the row's
///   scale
namespace ggml::quant {

/// What most formats have in common; they override the rest.
template <int N, int Bytes>
struct FieldFormat {
  using F = Fields<N>;
  static constexpr int kWeights = N, kBytes = Bytes, kHeader = 0, kRows = 1, kReach = 128, kGroup = 32;
  static constexpr bool kHasMin = false, kPlusZero = false;
  static bool sane(const F& f) { return (f.d & 0x7c00) != 0x7c00 && (f.dmin & 0x7c00) != 0x7c00; }
};

/// `Plain`: the format whose rows an interleaved one has in another order; itself for others.
template <class T, class Plain = T>
struct FieldCodec {
  using F = typename T::F;
  static constexpr std::int64_t kBlockBytes = T::kBytes * T::kRows;
  static constexpr int kPerPiece = kPiece / T::kWeights;

  static const std::uint8_t* block_at(const std::byte* group, std::int64_t b) {
    return reinterpret_cast<const std::uint8_t*>(group) + T::kHeader * T::kRows + b * kBlockBytes;
  }

  static float row_scale(const std::byte* group, int row) {
    if constexpr (T::kHeader == 0) {
      return 0;
    } else if constexpr (T::kHeader == 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, group + T::kHeader * row, sizeof(bits));
      return f16_to_f32(bits);
    } else {
      float d = 0;
      std::memcpy(&d, group + T::kHeader * row, sizeof(d));
      return d;
    }
  }

  static int unpack(const std::byte* group, int row, std::int64_t k, std::int64_t piece, Piece& out) noexcept {
    const float d = row_scale(group, row);
    const int n = static_cast<int>(std::min<std::int64_t>(kPiece, k - piece * kPiece));
    for (int b = 0; b * T::kWeights < n; ++b) {
      F f;
      T::layout(FieldReader(block_at(group, piece * kPerPiece + b)), row, f);
      const int at = b * T::kWeights;
      T::values(f, d, out.code + at, out.scale + at / kGroup, out.add + at / kGroup);
    }
    return n;
  }

  static void dequantise(const std::byte* group, int row, std::int64_t k, float* dst) noexcept {
    Piece piece;
    for (std::int64_t p = 0; p * kPiece < k; ++p) {
      const int n = unpack(group, row, k, p, piece);
      for (int e = 0; e < n; ++e) {
        const float product = piece.scale[e / kGroup] * static_cast<float>(piece.code[e]);
        dst[p * kPiece + e] = T::kHasMin || T::kPlusZero ? product + piece.add[e / kGroup] : product;
      }
    }
  }

  static void write_header(std::byte* group, int row, float d, const std::vector<F>& fields) {
    if constexpr (T::kHeader == 2) {
      const std::uint16_t bits = f32_to_f16(d);
      std::memcpy(group + T::kHeader * row, &bits, sizeof(bits));
    } else if constexpr (T::kHeader >= 4) {
      std::memcpy(group + T::kHeader * row, &d, sizeof(d));
    }
    if constexpr (T::kHeader == 8) {
      std::int32_t sum = 0;
      for (const F& f : fields) {
        for (const std::uint8_t q : f.q) sum += static_cast<std::int8_t>(q);
      }
      std::memcpy(group + T::kHeader * row + 4, &sum, sizeof(sum));
    }
  }

  static void quantise(const float* src, const float* importance, std::int64_t k, std::byte* dst) noexcept {
    const auto n = static_cast<std::size_t>(k / T::kWeights);
    std::memset(dst, 0, static_cast<std::size_t>(T::kRows) * (T::kHeader + n * T::kBytes));
    auto* blocks = reinterpret_cast<std::uint8_t*>(dst) + T::kHeader * T::kRows;
    for (int row = 0; row < T::kRows; ++row) {
      std::vector<F> fields(n);
      const float d = T::encode(src + row * k, importance, k, fields.data());
      write_header(dst, row, d, fields);
      for (std::size_t b = 0; b < n; ++b) {
        T::layout(FieldWriter(blocks + b * static_cast<std::size_t>(kBlockBytes)), row, fields[b]);
      }
    }
  }

  static std::int64_t find_bad(const std::byte* group, std::int64_t k) noexcept {
    for (int row = 0; row < T::kRows; ++row) {
      if (!std::isfinite(row_scale(group, row))) return 0;
    }
    for (std::int64_t b = 0; b < k / T::kWeights; ++b) {
      for (int row = 0; row < T::kRows; ++row) {
        F f;
        T::layout(FieldReader(block_at(group, b)), row, f);
        if (!T::sane(f)) return b;
      }
    }
    return -1;
  }

  static void interleave(const std::byte* rows, std::int64_t k, std::byte* dst) noexcept {
    static_assert(Plain::kWeights == T::kWeights && Plain::kBytes == T::kBytes && Plain::kRows == 1);
    const std::int64_t n = k / T::kWeights;
    std::memset(dst, 0, static_cast<std::size_t>(T::kRows * (T::kHeader + n * T::kBytes)));
    auto* blocks = reinterpret_cast<std::uint8_t*>(dst) + T::kHeader * T::kRows;
    for (int row = 0; row < T::kRows; ++row) {
      const std::byte* from = rows + row * (Plain::kHeader + n * Plain::kBytes);
      std::memcpy(dst + T::kHeader * row, from, T::kHeader);
      for (std::int64_t b = 0; b < n; ++b) {
        F f;
        Plain::layout(FieldReader(FieldCodec<Plain>::block_at(from, b)), 0, f);
        T::layout(FieldWriter(blocks + b * kBlockBytes), row, f);
      }
    }
  }

  static constexpr WeightCodec make() {
    WeightCodec made{dequantise, quantise, find_bad, unpack, T::kReach, T::kGroup, T::kHasMin};
    if constexpr (!std::is_same_v<T, Plain>) made.interleave = interleave;
    return made;
  }
  static constexpr WeightCodec kCodec = make();
};

/// For formats whose rows are those of another type in another order: encodes with that type and reads its fields.
template <class Base>
float encode_with(const WeightCodec& base, const float* x, const float* w, std::int64_t k, typename Base::F* fields) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(k / Base::kWeights * Base::kBytes));
  base.quantise(x, w, k, bytes.data());
  for (std::int64_t b = 0; b < k / Base::kWeights; ++b) {
    fields[b] = {};
    Base::layout(FieldReader(reinterpret_cast<const std::uint8_t*>(bytes.data()) + b * Base::kBytes), 0, fields[b]);
  }
  return 0;
}

/// The same scale for the two halves of 32 weights.
inline void set_scale(float d, float* scale, float* add) {
  scale[0] = scale[1] = d;
  add[0] = add[1] = 0;
}

}  // namespace ggml::quant
