// What is the same for every table: buffer layouts, and products made of other products.
#include <algorithm>

#include "cpu/kernels/act.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/scratch.h"
#include "cpu/kernels/unpacked.h"
#include "quant/codec.h"

namespace ggml::cpu {
namespace {

constexpr std::int64_t kAlign = 64;

constexpr std::int64_t align_up(std::int64_t n) {
  return (n + kAlign - 1) / kAlign * kAlign;
}

[[nodiscard]] bool is_float(ActType type) {
  return type == ActType::f32 || type == ActType::f16 || type == ActType::bf16;
}

/// Columns of a gate_up step: a whole number of tiles of every table, few enough for both halves to stay in the cache.
constexpr std::int64_t kGluColumns = kMaxTileRows;
/// One row of results is small, and its weights are read from memory: the longer the runs, the fewer fresh starts.
constexpr std::int64_t kGluColumnsOfOne = 8 * kMaxTileRows;

constexpr std::int64_t glu_columns(std::int64_t rows) {
  return rows == 1 ? kGluColumnsOfOne : kGluColumns;
}

}  // namespace

std::size_t act_bytes(ActType type, std::int64_t k, std::int64_t rows) noexcept {
  const std::int64_t row = is_float(type)
                               ? align_up(k * static_cast<std::int64_t>(sizeof(float)))
                               : (k + kActPiece - 1) / kActPiece * static_cast<std::int64_t>(sizeof(ActPiece));
  return static_cast<std::size_t>(row * rows);
}

ActView act_view(ActType type, void* data, std::int64_t k, std::int64_t rows) noexcept {
  auto* base = static_cast<std::byte*>(data);
  if (is_float(type)) {
    return {base, align_up(k * static_cast<std::int64_t>(sizeof(float))), kActPiece * sizeof(float)};
  }
  return {base, sizeof(ActPiece), static_cast<std::int64_t>(sizeof(ActPiece)) * rows};
}

std::size_t matmul_scratch_bytes(std::int64_t m_rows) noexcept {
  const std::int64_t rows = std::clamp<std::int64_t>(m_rows, 1, kMaxBlockRows);
  return static_cast<std::size_t>(kMatmulScratchBase + rows * kMaxTileRows * static_cast<std::int64_t>(sizeof(float)));
}

void quantise_act_rows(const KernelTable& table, ActType type, const float* src, std::int64_t src_stride,
                       std::int64_t k, const ActView& dst, std::int64_t row0, std::int64_t row1) noexcept {
  const QuantiseActFn quantise = table.act_of(type);
  for (std::int64_t row = row0; row < row1; ++row) quantise(src + row * src_stride, k, dst, row);
}

void dequantise_unpacked(DType type, const std::byte* row, std::int64_t k, float* dst) noexcept {
  quant::codec(static_cast<int>(type)).dequantise(row, 0, k, dst);
}

std::size_t gate_up_scratch_bytes(std::int64_t m_rows) noexcept {
  const std::int64_t rows = std::clamp<std::int64_t>(m_rows, 1, kMaxBlockRows);
  const std::int64_t floats = 2 * std::max(rows * kGluColumns, kGluColumnsOfOne);
  return matmul_scratch_bytes(rows) + static_cast<std::size_t>(floats) * sizeof(float);
}

void gate_up(const KernelTable& table, const GateUpArgs& args) noexcept {
  const MatmulArgs& whole = args.product;
  const MatmulFn gate_fn = table.of(args.gate_type).mul_mat, up_fn = table.of(args.up_type).mul_mat;
  const auto glu = args.op == GluOp::silu   ? table.vec.silu_mul
                   : args.op == GluOp::gelu ? table.vec.gelu_mul
                                            : table.vec.relu_mul;
  for (std::int64_t m0 = 0; m0 < whole.m_rows; m0 += kMaxBlockRows) {
    const std::int64_t rows = std::min(kMaxBlockRows, whole.m_rows - m0);
    auto* g = reinterpret_cast<float*>(static_cast<std::byte*>(whole.scratch) + matmul_scratch_bytes(rows));
    const std::int64_t columns = glu_columns(rows);
    float* u = g + rows * columns;
    for (std::int64_t n = whole.n0; n < whole.n1; n += columns) {
      MatmulArgs part = whole;
      part.n0 = n;
      part.n1 = std::min(n + columns, whole.n1);
      part.m_rows = rows;
      if (whole.src_rows != nullptr) {
        part.src_rows = whole.src_rows + m0;
      } else {
        part.act.data = whole.act.data + m0 * whole.act.row_stride;
      }
      part.dst_rows = nullptr;
      part.dst_row_stride = columns;
      part.dst = g - n;  // column n of the product is the first one of the buffer
      gate_fn(part);
      part.weights = args.up;
      part.weight_row_bytes = args.up_row_bytes;
      part.dst = u - n;
      up_fn(part);
      for (std::int64_t m = 0; m < rows; ++m) {
        const std::int64_t row = whole.dst_rows != nullptr ? whole.dst_rows[m0 + m] : m0 + m;
        glu(g + m * columns, u + m * columns, part.n1 - n, whole.dst + row * whole.dst_row_stride + n);
      }
    }
  }
}

}  // namespace ggml::cpu
