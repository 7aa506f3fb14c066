#pragma once

#include <array>
#include <cstdint>

#include "cpu/bound_op.h"

/// What the ops with weight matrices share: a slot bound to its kernel, and activations rounded once for several
/// products.
namespace ggml::cpu {

/// A slot's matrix [k, n] (or stack of matrices) with its kernel, bias and scale.
struct Projection {
  MatmulFn mul_mat = nullptr;
  DType type = DType::f32;
  ActType act = ActType::f32;
  const std::byte* weights = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t expert_bytes = 0;
  std::int64_t k = 0;
  std::int64_t n = 0;
  const float* bias = nullptr;   // [n] or [bias_stride, n_expert]
  std::int64_t bias_stride = 0;  // elements from one expert's bias to the next
  const float* scale = nullptr;  // [1] or [n_expert]
  bool scale_per_expert = false;

  [[nodiscard]] const std::byte* rows(std::int64_t expert, std::int64_t n0) const {
    return weights + expert * expert_bytes + n0 * row_bytes;
  }
  [[nodiscard]] bool is_plain() const { return bias == nullptr && scale == nullptr; }
  /// Rows [first, first + count) of the matrix as a projection of their own (halves of a fused gate and up).
  [[nodiscard]] Projection part(std::int64_t first, std::int64_t count) const;
};

[[nodiscard]] Projection bind_projection(const BindContext& context, const Slot& slot);

/// Null when the table has a kernel for the slot's type; the reason else.
[[nodiscard]] const char* why_not_projection(const Graph& graph, const KernelTable& kernels, const Slot& slot);

/// A block of a product's result: rows [0, m) x columns [n0, n1) of `y`, where column n lies at y[m * stride + n - n0].
struct ResultBlock {
  float* y = nullptr;
  std::int64_t stride = 0;
  std::int64_t m_rows = 0;
  std::int64_t n0 = 0, n1 = 0;
  const std::int32_t* rows = nullptr;  // row of y for m; null: m itself
};

/// y = y * scale + bias over a block just computed, while it is in the cache. `expert` is 0 for a single matrix.
void finish_projection(const Projection& p, std::int64_t expert, const KernelTable& kernels,
                       const ResultBlock& block) noexcept;

/// A product of some columns: y block = x (W rows n0..n1)^T, finished with scale and bias.
struct ProductArgs {
  ActView act;
  const std::int32_t* src_rows = nullptr;
  std::int64_t expert = 0;
  void* scratch = nullptr;
};
void run_product(const Projection& p, const KernelTable& kernels, const ProductArgs& args,
                 const ResultBlock& block) noexcept;

/// The activation forms that a set of projections wants, each once, and the rounded rows in them.
///
/// A few values are rounded by every worker for itself, which is cheaper than a barrier; more rows are shared out.
class RoundedInput {
 public:
  static constexpr int kMaxForms = 3;

  RoundedInput() = default;
  /// `capacity` rows of `k` elements for `projections`.
  RoundedInput(const BindContext& context, std::span<const Projection> projections, std::int64_t k,
               std::int64_t capacity, Carver& carver);

  struct View {
    std::array<ActView, kMaxForms> forms;
  };
  /// Whether every worker rounds all of this many rows for itself.
  [[nodiscard]] bool is_private(std::int64_t rows) const noexcept { return rows <= private_rows_; }
  [[nodiscard]] std::int64_t private_rows() const noexcept { return private_rows_; }
  /// Rounds `rows` rows at `x`, `x_stride` floats apart. All workers call it. Unless is_private(rows) the caller puts a
  /// barrier before it uses them.
  View round(Team& team, const float* x, std::int64_t x_stride, std::int64_t rows) const noexcept;
  /// Where `rows` rows of `form` lie when whoever computes them rounds them too.
  [[nodiscard]] ActView shared(ActType form, std::int64_t rows) const noexcept;
  [[nodiscard]] const ActView& of(const View& view, ActType form) const noexcept;

 private:
  const KernelTable* kernels_ = nullptr;
  std::int64_t k_ = 0;
  std::int64_t private_rows_ = 1;
  int n_forms_ = 0;
  std::array<ActType, kMaxForms> forms_{};
  std::array<std::byte*, kMaxForms> shared_{};
  std::array<PerWorker<std::byte>, kMaxForms> own_{};
};

/// Several projections of the same input, computed by one parallel loop over all their weight rows.
class ProjectionGroup {
 public:
  static constexpr int kMaxMembers = 3;

  struct Member {
    Projection projection;
    float* dst = nullptr;  // row m at dst + m * dst_stride
    std::int64_t dst_stride = 0;
  };

  ProjectionGroup() = default;
  ProjectionGroup(const BindContext& context, std::span<const Member> members, std::int64_t capacity, Carver& carver);

  /// Rounds the rows and computes all products. No barrier at the end.
  void run(Team& team, const float* x, std::int64_t x_stride, std::int64_t rows) const noexcept;

 private:
  void run_units(Team& team, const RoundedInput::View& view, std::int64_t rows, std::int64_t begin,
                 std::int64_t end) const noexcept;

  const KernelTable* kernels_ = nullptr;
  int n_members_ = 0;
  std::array<Member, kMaxMembers> members_{};
  std::array<std::int64_t, kMaxMembers + 1> first_unit_{};
  RoundedInput input_;
  PerWorker<std::byte> scratch_;
};

/// Weight rows that a loop hands out together: what the kernels do fastest.
inline constexpr std::int64_t kRowUnit = 32;

}  // namespace ggml::cpu
