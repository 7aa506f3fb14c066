#pragma once

#include "cpu/ops/activation.h"
#include "cpu/ops/projection.h"

namespace ggml::cpu {

/// The first half of a feed-forward network, for dense layers and for experts: hidden = act(gate x) * (up x), or
/// act(up x) without a gate.
class GateUp {
 public:
  struct Config {
    GatedParams gated;
    bool has_gate = true;
    bool fused_weight = false;  // one matrix holds the rows of gate, then those of up
  };

  GateUp() = default;
  /// `slots`: {gate, up}, {gate_up} or {up}. Workspace is per worker, for up to `max_rows` rows of `max_columns`.
  GateUp(const BindContext& context, const Config& config, std::span<const Slot> slots);
  /// What the products of `max_rows` rows and `max_columns` columns need beside.
  void take_scratch(const BindContext& context, std::int64_t max_rows, std::int64_t max_columns, Carver& carver);

  [[nodiscard]] std::span<const Projection> projections() const { return std::span(parts_).first(n_parts_); }
  [[nodiscard]] std::int64_t k() const { return parts_[0].k; }
  [[nodiscard]] std::int64_t width() const { return parts_[0].n; }  // columns of hidden

  struct Input {
    const RoundedInput& source;
    const RoundedInput::View& view;
    const std::int32_t* src_rows = nullptr;  // row of the input for m; null: m itself
    std::int64_t expert = 0;
  };
  /// hidden columns [block.n0, block.n1) of rows [0, block.m_rows).
  void run(Team& team, const Input& in, const ResultBlock& block) const noexcept;

 private:
  const KernelTable* kernels_ = nullptr;
  Config config_;
  std::size_t n_parts_ = 0;
  std::array<Projection, 2> parts_{};  // gate and up, or up alone
  std::optional<GluOp> fused_;         // set: the fused kernel does it all
  PerWorker<std::byte> scratch_;
  PerWorker<float> up_;  // [max_rows][max_columns]
};

}  // namespace ggml::cpu
