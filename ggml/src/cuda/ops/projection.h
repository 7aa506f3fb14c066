#pragma once

#include <optional>

#include "cuda/bound_op.h"
#include "cuda/kernels/activations.h"
#include "cuda/kernels/products.h"

/// What the ops with weight matrices share: a slot bound to its kernels, and activations rounded once for several
/// products.
namespace ggml::cuda {

/// The kernels for values that lie as `stored`.
[[nodiscard]] inline FloatKind float_kind(DType stored) noexcept {
  return stored == DType::f16 ? FloatKind::f16 : stored == DType::bf16 ? FloatKind::bf16 : FloatKind::f32;
}

/// Activation rows in the form that a weight type multiplies: 8-bit codes, or rounded floats.
class RoundedRows {
 public:
  RoundedRows() = default;
  /// Workspace for `rows` rows of `k` values.
  RoundedRows(ActType act, int k, const RowCount& rows, Carver& carver);
  /// The same, but without work where the producer of `x` leaves this form of it.
  RoundedRows(const BindContext& context, TensorId x, ActType act, int k, const RowCount& rows, Carver& carver);
  void launch(const float* x, cudaStream_t stream) const;
  [[nodiscard]] ActType act() const { return act_; }
  [[nodiscard]] const QuantisedRows& quantised() const { return quantised_; }
  /// The rows to multiply for float types: `x` itself where nothing is rounded.
  [[nodiscard]] const float* floats(const float* x) const { return act_ == ActType::f32 ? x : floats_; }

 private:
  ActType act_ = ActType::f32;
  int k_ = 0;
  RowCount rows_;
  QuantisedRows quantised_;
  float* floats_ = nullptr;
  bool given_ = false;
};

/// Whether an op keeps rows in this form as 8-bit codes.
[[nodiscard]] bool is_quantised(ActType act) noexcept;
/// Bytes of rounded rows (kernels/weights.h: QuantisedRows).
[[nodiscard]] std::size_t rounded_bytes(ActType act, int k, int rows);
/// The forms of a result that its producer leaves, as kernels take them: at most N.
template <std::size_t N>
void set_rounded_outputs(const BindContext& context, TensorId values, int k, const RowCount& rows,
                         RoundedOutput (&to)[N]) {
  std::size_t n = 0;
  for (const RoundedTensor& r : context.rounded_forms(values)) {
    Carver carver(context.data<std::byte>(r.rounded));
    if (n < N) to[n++] = {r.act, RoundedRows(r.act, k, rows, carver).quantised()};
  }
}

/// A slot's matrix or stack of matrices with what follows the product.
class Projection {
 public:
  Projection() = default;
  Projection(const BindContext& context, const Slot& slot);
  /// Rows [first, first + n) of it.
  [[nodiscard]] Projection part(std::int64_t first, std::int64_t n) const;
  /// Says that its products with so many rows are launched right after those of `before`, of the same input: then
  /// tiles of both are multiplied side by side.
  void follow(const Projection& before, int rows);
  [[nodiscard]] ActType act() const { return act_; }
  [[nodiscard]] int k() const { return w_.k; }
  [[nodiscard]] std::int64_t n() const { return w_.n; }

  [[nodiscard]] bool is_quantised() const { return spec_.form != ScaleForm::none; }
  [[nodiscard]] const PlaneSpec& spec() const { return spec_; }
  /// Arguments of the kernels for rows without experts; the planes' only.
  [[nodiscard]] ProductArgs args(const RoundedRows& x, float* y, std::int64_t y_stride, const RowCount& rows) const;

  /// y [n, rows] = product of each row.
  void launch(const RoundedRows& x, const float* x_float, float* y, std::int64_t y_stride, const RowCount& rows,
              cudaStream_t stream) const;
  /// y [n, pairs]: each pair with its expert's matrix. `tiles` when there are many pairs of a quantised type.
  void launch_experts(const RoundedRows& x, const float* x_float, float* y, const RowCount& pairs, const ExpertIds& ids,
                      const ExpertTiles* tiles, cudaStream_t stream) const;
  /// Whether launch_experts can use tiles.
  [[nodiscard]] bool has_tiles() const { return spec_.form != ScaleForm::none; }

 private:
  void launch_one(const ProductArgs& product, cudaStream_t stream) const;

  PlaneSpec spec_;
  FloatKind float_kind_ = FloatKind::f32;
  ActType act_ = ActType::f32;
  PlanarWeight w_;
  Epilogue epilogue_;
  bool beside_ = false;
};

/// Products of few rows that share their activations: all weights of a single row are copied ahead if they can be.
void launch_few(const RowProducts& products, cudaStream_t stream);

/// Null when the kernels take the slot's type and shape; the reason else.
[[nodiscard]] const char* why_not_projection(const Graph& graph, const Slot& slot);

}  // namespace ggml::cuda
