#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "cpu/kernels/kernels.h"
#include "ggml/op.h"

/// The KV cache as attention's kernels see it: blocks of one layer behind a block table.
namespace ggml::cpu {

struct KvPlane {
  DType type = DType::f16;
  int dim = 0;
  std::size_t values = 0, scales = 0;            // offsets in a block
  std::size_t head_values = 0, head_scales = 0;  // bytes per head

  [[nodiscard]] std::size_t row_values() const noexcept { return head_values / kKvBlockTokens; }
  [[nodiscard]] std::int64_t row_scales() const noexcept {
    return static_cast<std::int64_t>(head_scales / kKvBlockTokens / sizeof(std::uint16_t));
  }
};

class KvCache {
 public:
  KvCache() = default;
  KvCache(const KvLayout& layout, std::byte* pool, const std::int32_t* table)
      : block_bytes_(layout.block_bytes()), pool_(pool), table_(table) {
    k_ = plane(layout.k_type, layout.dk, layout.k_values(), layout.k_scales());
    v_ = plane(layout.v_type, layout.dv, layout.v_values(), layout.v_scales());
  }

  [[nodiscard]] const KvPlane& k() const noexcept { return k_; }
  [[nodiscard]] const KvPlane& v() const noexcept { return v_; }

  /// The block that holds a span's cells [64 * block, ...); null where it was freed.
  [[nodiscard]] std::byte* block(const AttnSpan& span, int block) const noexcept {
    const int entry = block - span.first_block;
    if (entry < 0) return nullptr;
    const std::int32_t id = table_[span.table_offset + entry];
    return id < 0 ? nullptr : pool_ + static_cast<std::size_t>(id) * block_bytes_;
  }

  static KvTile tile(const KvPlane& p, const std::byte* block, int head, int first, int n) noexcept {
    const auto h = static_cast<std::size_t>(head);
    KvTile t;
    t.values = block + p.values + h * p.head_values + static_cast<std::size_t>(first) * p.row_values();
    t.scales = p.head_scales == 0 ? nullptr
                                  : reinterpret_cast<const std::uint16_t*>(block + p.scales + h * p.head_scales) +
                                        first * p.row_scales();
    t.n_tokens = n;
    t.dim = p.dim;
    return t;
  }

  /// Writes one head's row for the cell at `token` of a block.
  static void store(const KvKernels& kernels, const KvPlane& p, std::byte* block, int head, int token,
                    const float* src) noexcept {
    const KvTile t = tile(p, block, head, token, 1);
    kernels.store(src, p.dim, const_cast<std::byte*>(t.values), const_cast<std::uint16_t*>(t.scales));
  }

 private:
  static KvPlane plane(DType type, int dim, std::size_t values, std::size_t scales) {
    return {type, dim, values, scales, KvLayout::head_value_bytes(type, dim), KvLayout::head_scale_bytes(type, dim)};
  }

  std::size_t block_bytes_ = 0;
  std::byte* pool_ = nullptr;
  const std::int32_t* table_ = nullptr;
  KvPlane k_, v_;
};

/// Cells [begin, end) that the row at `cell` sees; `n_cells` are all cells of its sequence.
struct CellRange {
  int begin, end;
};
[[nodiscard]] inline CellRange visible_cells(const AttentionParams& p, int cell, int n_cells) noexcept {
  CellRange r{0, p.causal ? cell + 1 : n_cells};
  switch (p.window_kind) {
    case WindowKind::none:
      break;
    case WindowKind::standard:
      r.begin = std::max(0, cell - p.window + 1);
      break;
    case WindowKind::chunked:
      r.begin = cell / p.window * p.window;
      break;
    case WindowKind::symmetric:
      r.begin = std::max(0, cell - p.window / 2);
      r.end = std::min(r.end, cell + p.window / 2 + 1);
      break;
  }
  return r;
}

/// Slope of a head's ALiBi bias (arXiv:2108.12409); 0 without.
[[nodiscard]] float alibi_slope(float max_bias, int n_head, int head) noexcept;

/// Appends the rows of all spans to their blocks; shared out over the team by (row, head). No barrier.
class KvAppender {
 public:
  KvAppender() = default;
  KvAppender(const KvLayout& layout, const KernelTable& kernels)
      : layout_(layout), k_kernels_(kernels.kv_of(layout.k_type)), v_kernels_(kernels.kv_of(layout.v_type)) {}

  struct Args {
    const float* k = nullptr;  // [dk, n_head_kv, T]
    const float* v = nullptr;  // [dv, n_head_kv, T]
    const KvCache& cache;
    const AttnSpan* spans = nullptr;
    int n_spans = 0;
  };
  void append(const Args& args, std::int64_t worker, std::int64_t n_workers) const noexcept;

 private:
  KvLayout layout_;
  KvKernels k_kernels_, v_kernels_;
};

}  // namespace ggml::cpu
