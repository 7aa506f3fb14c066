#pragma once

#include "cpu/ops/gate_up.h"

namespace ggml::cpu {

/// The values between the two halves of a feed-forward network, and their rounded form for the second half.
///
/// Few rows: f32 values in shared memory, cut as finely as threads need, then rounded. Many rows: each item computes
/// all columns of one activation piece and rounds them while they are in the cache, so that the f32 values never leave
/// it.
class HiddenRows {
 public:
  /// From this many rows on a piece of 256 columns is work enough for an item.
  static constexpr std::int64_t kManyRows = 16;

  HiddenRows() = default;
  /// Up to `capacity` rows of down.k columns; up to `max_item_rows` rows in one item.
  HiddenRows(const BindContext& context, const Projection& down, std::int64_t capacity, std::int64_t max_item_rows,
             Carver& carver);

  [[nodiscard]] const RoundedInput& rounded() const noexcept { return rounded_; }
  [[nodiscard]] float* values() const noexcept { return values_; }  // [capacity of few rows][k]
  [[nodiscard]] std::int64_t pieces() const noexcept { return (k_ + kActPiece - 1) / kActPiece; }

  /// Runs `gate_up` for rows [row0, row0 + m_rows) and columns of `piece`, and rounds them into `view`, the rounded
  /// form of `all_rows` rows.
  struct PieceItem {
    std::int64_t piece = 0;
    std::int64_t row0 = 0, m_rows = 0;
  };
  void run_piece(Team& team, const GateUp& gate_up, const GateUp::Input& in, const PieceItem& item,
                 const ActView& view) const noexcept;

 private:
  const KernelTable* kernels_ = nullptr;
  ActType form_ = ActType::f32;
  std::int64_t k_ = 0;
  RoundedInput rounded_;
  float* values_ = nullptr;
  PerWorker<float> tile_;  // [max_item_rows][kActPiece]
};

}  // namespace ggml::cpu
