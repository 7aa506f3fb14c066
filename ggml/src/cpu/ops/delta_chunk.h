#pragma once

#include <array>
#include <cstdint>

#include "cpu/kernels/kernels.h"

namespace ggml::cpu {

/// The gated delta rule over several rows at once, for one value head. With the state S before them, the decay g_t of
/// all rows up to t, the decay w_ti of those behind i up to t, and what row t adds, u_t:
///   u_t = beta_t (v_t - g_t S k_t - sum over i < t of w_ti (k_i . k_t) u_i)
///   o_t = g_t S q_t + sum over i <= t of w_ti (k_i . q_t) u_i
///   S'  = g_n S + sum over i of w_ni u_i k_i^T
/// All but the sums over i < t are products of matrices, for which the state is read once and not once per row
/// (arXiv:2406.06484, with the gate of arXiv:2412.06464).
class DeltaChunk {
 public:
  static constexpr std::int64_t kRows = 32;  // at most
  /// Of so many rows one after the other, those that are faster in chunks: what is left behind them is short.
  [[nodiscard]] static constexpr std::int64_t rows_in_chunks(std::int64_t rows) noexcept {
    constexpr std::int64_t kFewest = 12;
    const std::int64_t rest = rows % kRows;
    return rest >= kFewest ? rows : rows - rest;
  }

  DeltaChunk(const KernelTable& kernels, std::int64_t head_dim, float* scratch);
  /// Floats of scratch, for one worker.
  [[nodiscard]] static std::int64_t scratch_floats(std::int64_t head_dim) noexcept;

  /// One row as the recurrence takes it. v stays where it is; q and k are copied.
  struct Row {
    const float* q;
    const float* k;
    const float* v;
    float decay;  // of the state in front of it
    float beta;
  };
  void add(const Row& row) noexcept;
  [[nodiscard]] std::int64_t rows() const noexcept { return n_; }
  [[nodiscard]] bool is_full() const noexcept { return n_ == kRows; }
  /// Brings the state [value][key] behind the rows; row t's result goes to out + t * out_stride. Then it is empty.
  void finish(float* state, float* out, std::int64_t out_stride) noexcept;

 private:
  void multiply(const float* rows, std::int64_t n_rows, const float* with, std::int64_t n_with, float* to,
                std::int64_t stride) const noexcept;
  void add_product(const float* factors, std::int64_t n_rows, const float* rows, float* to,
                   std::int64_t stride) const noexcept;
  void solve(float* out, std::int64_t out_stride, std::array<float, kRows>& weights, float& decay) const noexcept;

  const KernelTable& kernels_;
  const std::int64_t d_;
  std::int64_t n_ = 0;
  std::array<const float*, kRows> v_{};
  std::array<float, kRows> decay_{}, beta_{};
  float *keys_, *queries_;     // [row][d]
  float* added_;               // u [row][d]
  float* added_across_;        // [d][row], times the decay behind each row
  float *seen_key_, *seen_;    // S k and S q [row][d]
  float *of_keys_, *of_rows_;  // products of each key and query with the keys; [row][kRows]
};

}  // namespace ggml::cpu
