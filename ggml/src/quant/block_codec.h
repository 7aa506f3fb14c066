#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ggml/quant.h"
#include "quant/codec.h"

/// Builds a WeightCodec from what a block type has to say: a format struct with
///   using Block; static constexpr int kWeights;                     block struct and weights per block
///   static constexpr bool kHasMin;  static constexpr int kReach;    a minimum is added; the largest magnitude of a
///   code static void decode(const Block&, int8_t* code, float* scale, float* add);    one block, scales per 16 static
///   bool sane(const Block&);                                 no NaN or infinity in its scales static void encode(const
///   float* x, const float* w, int64 k, Block* out);     a whole row; w may be null
namespace ggml::quant {

[[nodiscard]] inline bool finite_half(std::uint16_t bits) noexcept {
  return (bits & 0x7c00) != 0x7c00;
}

template <class Format>
int unpack_blocks(const std::byte* row, int /*row*/, std::int64_t k, std::int64_t piece, Piece& out) noexcept {
  using Block = typename Format::Block;
  constexpr int kPerPiece = kPiece / Format::kWeights;
  const std::int64_t first = piece * kPiece;
  const int n = static_cast<int>(std::min<std::int64_t>(kPiece, k - first));
  for (int b = 0; b * Format::kWeights < n; ++b) {
    Block block;
    std::memcpy(&block, row + (piece * kPerPiece + b) * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
    const int at = b * Format::kWeights;
    Format::decode(block, out.code + at, out.scale + at / kGroup, out.add + at / kGroup);
  }
  return n;
}

template <class Format>
void dequantise_blocks(const std::byte* row, int /*row*/, std::int64_t k, float* dst) noexcept {
  Piece piece;
  for (std::int64_t p = 0; p * kPiece < k; ++p) {
    const int n = unpack_blocks<Format>(row, 0, k, p, piece);
    for (int e = 0; e < n; ++e) {
      const float product = piece.scale[e / kGroup] * static_cast<float>(piece.code[e]);
      dst[p * kPiece + e] = Format::kHasMin ? product + piece.add[e / kGroup] : product;
    }
  }
}

template <class Format>
void quantise_blocks(const float* src, const float* importance, std::int64_t k, std::byte* dst) noexcept {
  Format::encode(src, importance, k, reinterpret_cast<typename Format::Block*>(dst));
}

template <class Format>
std::int64_t find_bad_block_of(const std::byte* row, std::int64_t k) noexcept {
  using Block = typename Format::Block;
  for (std::int64_t b = 0; b < k / Format::kWeights; ++b) {
    Block block;
    std::memcpy(&block, row + b * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
    if (!Format::sane(block)) return b;
  }
  return -1;
}

template <class Format>
inline constexpr WeightCodec kBlockCodec{dequantise_blocks<Format>,
                                         quantise_blocks<Format>,
                                         find_bad_block_of<Format>,
                                         unpack_blocks<Format>,
                                         Format::kReach,
                                         Format::kWeights == 256 ? kGroup : 32,
                                         Format::kHasMin};

}  // namespace ggml::quant
