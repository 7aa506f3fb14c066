#include "cuda/planes.h"

#include <algorithm>
#include <cstring>

#include "ggml/quant.h"
#include "quant/blocks.h"
#include "quant/codec.h"

namespace ggml::cuda {
namespace {

using quant::Piece;

constexpr std::size_t kPlaneAlign = 256;
constexpr int kPieceUnits = quant::kPiece / kUnit;

/// Writes the scales plane of the units of one piece (256 weights or less) and its supers.
using ScalesFn = void (*)(const std::byte* blocks, int units, std::byte* scales, std::byte* supers);

/// Types with one block per unit whose scale (and minimum) stand at the start of the block as halves.
template <class Block, int kBytes>
void leading_halves(const std::byte* blocks, int units, std::byte* scales, std::byte* /*supers*/) {
  for (int u = 0; u < units; ++u) std::memcpy(scales + u * kBytes, blocks + u * sizeof(Block), kBytes);
}

/// Blocks of 256 with eight 6-bit scales and minima; d and dmin are the first two halves.
template <class Block>
void six_bit_scales(const std::byte* blocks, int /*units*/, std::byte* scales, std::byte* supers) {
  Block block;
  std::memcpy(&block, blocks, sizeof block);
  const std::uint8_t* s = block.scales;
  for (int i = 0; i < 8; ++i) {
    const int scale = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
    const int min = i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | (s[i] >> 6) << 4;
    scales[2 * i] = static_cast<std::byte>(scale);
    scales[2 * i + 1] = static_cast<std::byte>(min);
  }
  std::memcpy(supers, &block.d, 4);
}

void byte_scales(const std::byte* blocks, int /*units*/, std::byte* scales, std::byte* supers) {
  quant::BlockQ6_K block;
  std::memcpy(&block, blocks, sizeof block);
  std::memcpy(scales, block.scales, sizeof block.scales);
  std::memcpy(supers, &block.d, 2);
}

struct PlanarType {
  DType type;
  PlaneSpec spec;
  ScalesFn scales;  // null: from the piece (wide)
};

// The types with planes of their own. Others are wide; float types in another order (interleaved rows) become f32.
constexpr PlanarType kPlanarTypes[] = {
    {DType::f32, {0, ScaleForm::none, 0, DType::f32}, nullptr},
    {DType::f16, {0, ScaleForm::none, 0, DType::f16}, nullptr},
    {DType::bf16, {0, ScaleForm::none, 0, DType::bf16}, nullptr},
    {DType::q4_0, {4, ScaleForm::half, 8}, leading_halves<quant::BlockQ4_0, 2>},
    {DType::q4_1, {4, ScaleForm::half_min, 0}, leading_halves<quant::BlockQ4_1, 4>},
    {DType::q5_0, {5, ScaleForm::half, 16}, leading_halves<quant::BlockQ5_0, 2>},
    {DType::q5_1, {5, ScaleForm::half_min, 0}, leading_halves<quant::BlockQ5_1, 4>},
    {DType::q8_0, {8, ScaleForm::half, 0}, leading_halves<quant::BlockQ8_0, 2>},
    {DType::q4_k, {4, ScaleForm::k_min, 0}, six_bit_scales<quant::BlockQ4_K>},
    {DType::q5_k, {5, ScaleForm::k_min, 0}, six_bit_scales<quant::BlockQ5_K>},
    {DType::q6_k, {6, ScaleForm::k_16, 32}, byte_scales},
};
constexpr PlanarType kWide{DType::f32, {8, ScaleForm::wide, 0}, nullptr};
constexpr PlanarType kDecoded{DType::f32, {0, ScaleForm::none, 0, DType::f32}, nullptr};

const PlanarType& planar_type(DType type) noexcept {
  for (const PlanarType& p : kPlanarTypes) {
    if (p.type == type) return p;
  }
  return quant::codec(static_cast<int>(type)).unpack != nullptr ? kWide : kDecoded;
}

void write_codes(const Piece& piece, int unit, const PlaneSpec& spec, std::byte* codes, std::byte* high) {
  std::uint8_t code[kUnit];
  for (int j = 0; j < kUnit; ++j) code[j] = static_cast<std::uint8_t>(piece.code[unit * kUnit + j] + spec.center);
  if (spec.code_bits == 8) {
    std::memcpy(codes, code, kUnit);
    return;
  }
  for (int j = 0; j < 16; ++j) codes[j] = static_cast<std::byte>((code[j] & 15) | (code[16 + j] & 15) << 4);
  if (spec.code_bits == 5) {
    std::uint32_t bits = 0;
    for (int j = 0; j < kUnit; ++j) bits |= static_cast<std::uint32_t>(code[j] >> 4 & 1) << (8 * (j % 4) + j / 4);
    std::memcpy(high, &bits, 4);
  } else if (spec.code_bits == 6) {
    std::uint8_t bytes[8] = {};
    for (int j = 0; j < kUnit; ++j) {
      bytes[j % 8] = static_cast<std::uint8_t>(bytes[j % 8] | (code[j] >> 4 & 3) << (2 * (j / 8)));
    }
    std::memcpy(high, bytes, 8);
  }
}

/// f32 scale and add of both halves of a unit.
void write_wide_scales(const Piece& piece, int units, std::byte* scales) {
  for (int u = 0; u < units; ++u) {
    const float values[4] = {piece.scale[2 * u], piece.scale[2 * u + 1], piece.add[2 * u], piece.add[2 * u + 1]};
    std::memcpy(scales + u * sizeof values, values, sizeof values);
  }
}

std::size_t aligned(std::size_t n) {
  return (n + kPlaneAlign - 1) / kPlaneAlign * kPlaneAlign;
}

}  // namespace

PlaneSpec plane_spec(DType type) noexcept {
  return planar_type(type).spec;
}

PlaneBytes plane_bytes(const PlaneSpec& spec) noexcept {
  PlaneBytes bytes;
  bytes.codes = spec.code_bits == 8 ? 32 : 16;
  bytes.high = spec.code_bits == 5 ? 4 : spec.code_bits == 6 ? 8 : 0;
  switch (spec.form) {
    case ScaleForm::none:
      bytes.codes = 0;
      break;
    case ScaleForm::half:
      bytes.scales = 2;
      break;
    case ScaleForm::half_min:
      bytes.scales = 4;
      break;
    case ScaleForm::k_min:
      bytes.scales = 2;
      bytes.supers = 4;
      break;
    case ScaleForm::k_16:
      bytes.scales = 2;
      bytes.supers = 2;
      break;
    case ScaleForm::wide:
      bytes.scales = 16;
      break;
  }
  return bytes;
}

PlaneOffsets plane_offsets(DType type, const Shape& shape) noexcept {
  const PlaneSpec spec = plane_spec(type);
  PlaneOffsets o;
  if (spec.form == ScaleForm::none) {
    o.total = aligned(tensor_bytes(spec.stored, shape));
    return o;
  }
  const PlaneBytes bytes = plane_bytes(spec);
  const auto units = static_cast<std::size_t>(shape.elements() / kUnit);
  o.high = aligned(units * static_cast<std::size_t>(bytes.codes));
  o.scales = o.high + aligned(units * static_cast<std::size_t>(bytes.high));
  o.supers = o.scales + aligned(units * static_cast<std::size_t>(bytes.scales));
  o.total = o.supers + aligned(units / kUnitsPerSuper * static_cast<std::size_t>(bytes.supers));
  return o;
}

void write_planes(DType type, const Shape& shape, const std::byte* src, std::int64_t begin, std::int64_t end,
                  std::byte* dst) noexcept {
  const PlanarType& planar = planar_type(type);
  const std::int64_t k = shape[0];
  const TypeInfo& info = type_info(type);
  const std::size_t group_bytes = row_bytes(type, k) * static_cast<std::size_t>(info.rows_per_group);
  if (planar.spec.form == ScaleForm::none && planar.spec.stored != type) {
    auto* values = reinterpret_cast<float*>(dst);
    for (std::int64_t row = begin; row < end; ++row) dequantise_row_of(type, src, row, k, values + row * k);
    return;
  }
  if (planar.spec.form == ScaleForm::none) {
    const std::size_t bytes = row_bytes(type, k);
    std::memcpy(dst + static_cast<std::size_t>(begin) * bytes, src + static_cast<std::size_t>(begin) * bytes,
                static_cast<std::size_t>(end - begin) * bytes);
    return;
  }
  const PlaneBytes bytes = plane_bytes(planar.spec);
  const PlaneOffsets offsets = plane_offsets(type, shape);
  const quant::WeightCodec& codec = quant::codec(static_cast<int>(type));
  Piece piece;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::byte* group = src + static_cast<std::size_t>(row / info.rows_per_group) * group_bytes;
    for (std::int64_t p = 0; p * quant::kPiece < k; ++p) {
      const int n = codec.unpack(group, static_cast<int>(row % info.rows_per_group), k, p, piece);
      const auto first = static_cast<std::size_t>(row * (k / kUnit) + p * kPieceUnits);
      const int units = n / kUnit;
      for (int u = 0; u < units; ++u) {
        const std::size_t at = first + static_cast<std::size_t>(u);
        write_codes(piece, u, planar.spec, dst + offsets.codes + at * static_cast<std::size_t>(bytes.codes),
                    dst + offsets.high + at * static_cast<std::size_t>(bytes.high));
      }
      std::byte* scales = dst + offsets.scales + first * static_cast<std::size_t>(bytes.scales);
      if (planar.scales == nullptr) {
        write_wide_scales(piece, units, scales);
        continue;
      }
      const std::byte* blocks = group + static_cast<std::size_t>(p * quant::kPiece / info.block_weights) *
                                            static_cast<std::size_t>(info.block_bytes);
      planar.scales(blocks, units, scales,
                    dst + offsets.supers + first / kUnitsPerSuper * static_cast<std::size_t>(bytes.supers));
    }
  }
}

}  // namespace ggml::cuda
