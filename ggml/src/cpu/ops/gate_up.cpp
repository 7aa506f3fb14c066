#include "cpu/ops/gate_up.h"

#include <algorithm>

namespace ggml::cpu {

GateUp::GateUp(const BindContext& context, const Config& config, std::span<const Slot> slots)
    : kernels_(&context.kernels()), config_(config), n_parts_(config.has_gate ? 2 : 1) {
  const Projection first = bind_projection(context, slots[0]);
  if (config.fused_weight) {
    const std::int64_t half = first.n / 2;
    parts_ = {first.part(0, half), first.part(half, half)};
  } else if (config.has_gate) {
    parts_ = {first, bind_projection(context, slots[1])};
  } else {
    parts_[0] = first;
  }
  const bool plain = parts_[0].is_plain() && (n_parts_ == 1 || parts_[1].is_plain());
  if (config.has_gate && plain && parts_[0].act == parts_[1].act) fused_ = fused_glu(config.gated);
}

void GateUp::take_scratch(const BindContext& context, std::int64_t max_rows, std::int64_t max_columns, Carver& carver) {
  const std::size_t bytes = std::max(matmul_scratch_bytes(max_rows), fused_ ? gate_up_scratch_bytes(max_rows) : 0);
  scratch_ = PerWorker<std::byte>(carver, context.n_workers(), static_cast<std::int64_t>(bytes));
  if (n_parts_ == 2 && !fused_) up_ = PerWorker<float>(carver, context.n_workers(), max_rows * max_columns);
}

void GateUp::run(Team& team, const Input& in, const ResultBlock& block) const noexcept {
  const std::int64_t n = block.n1 - block.n0;
  const ProductArgs args{.act = in.source.of(in.view, parts_[0].act),
                         .src_rows = in.src_rows,
                         .expert = in.expert,
                         .scratch = scratch_.of(team)};
  if (fused_) {
    GateUpArgs a;
    a.product.weights = parts_[0].rows(in.expert, block.n0);
    a.product.weight_row_bytes = parts_[0].row_bytes;
    a.product.k = parts_[0].k;
    a.product.n1 = n;
    a.product.act = args.act;
    a.product.m_rows = block.m_rows;
    a.product.src_rows = in.src_rows;
    a.product.dst_rows = block.rows;
    a.product.dst = block.y;
    a.product.dst_row_stride = block.stride;
    a.product.scratch = args.scratch;
    a.gate_type = parts_[0].type;
    a.up = parts_[1].rows(in.expert, block.n0);
    a.up_row_bytes = parts_[1].row_bytes;
    a.up_type = parts_[1].type;
    a.op = *fused_;
    gate_up(*kernels_, a);
    return;
  }
  run_product(parts_[0], *kernels_, args, block);
  float* up = nullptr;
  if (n_parts_ == 2) {
    up = up_.of(team);
    ProductArgs up_args = args;
    up_args.act = in.source.of(in.view, parts_[1].act);
    run_product(parts_[1], *kernels_, up_args,
                {.y = up, .stride = n, .m_rows = block.m_rows, .n0 = block.n0, .n1 = block.n1});
  }
  for (std::int64_t m = 0; m < block.m_rows; ++m) {
    float* y = block.y + (block.rows == nullptr ? m : block.rows[m]) * block.stride;
    if (up != nullptr) {
      apply_gated(kernels_->vec, config_.gated, y, up + m * n, n, y);
    } else {
      apply_activation(kernels_->vec, config_.gated.act, y, n, y);
    }
  }
}

}  // namespace ggml::cpu
