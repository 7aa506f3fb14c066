#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "cpu/kernels/act.h"
#include "cpu/ops/activation.h"
#include "cpu/ops/registry.h"

// Ops on f32 values element by element or row by row: the primitives, two of which are coarse ops as well (add, mul).

namespace ggml::cpu {
namespace {

constexpr std::int64_t kGrain = 2048;  // elements that are worth handing to another worker

struct Strides {
  std::array<std::int64_t, kMaxDims> of{};
  explicit Strides(const Shape& shape) {
    std::int64_t stride = 1;
    for (std::size_t axis = 0; axis < kMaxDims; ++axis) {
      of[axis] = shape.ne[axis] == 1 ? 0 : stride;  // an axis of 1 is repeated
      stride *= shape.ne[axis];
    }
  }
  [[nodiscard]] std::int64_t row(const std::array<std::int64_t, kMaxDims>& at) const {
    return of[1] * at[1] + of[2] * at[2] + of[3] * at[3];
  }
};

using BinaryFn = void (*)(const float* a, const float* b, std::int64_t n, float* dst) noexcept;

/// Sum or product with repeated axes. dst may lie on top of the first source.
class Binary final : public BoundOp {
 public:
  Binary(const BindContext& c, const Node& node, Carver& carver)
      : is_add_(node.op == Op::add),
        apply_(is_add_ ? c.kernels().vec.add : c.kernels().vec.mul),
        shape_(c.tensor(node.dst[0]).shape),
        a_(c.data<const float>(node.src[0])),
        b_(c.data<const float>(node.src[1])),
        dst_(c.data<float>(node.dst[0])),
        a_strides_(c.tensor(node.src[0]).shape),
        b_strides_(c.tensor(node.src[1]).shape),
        same_(c.tensor(node.src[0]).shape == c.tensor(node.src[1]).shape),
        elements_(c.live_rows(node.dst[0], 1)) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t n = elements_.of(counts);
    if (same_) {
      team.for_chunks(n, chunk_for(n, team.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
        apply_(a_ + begin, b_ + begin, end - begin, dst_ + begin);
      });
      return;
    }
    const std::int64_t rows = n / shape_[0];
    const std::int64_t granule = std::max<std::int64_t>(1, kGrain / shape_[0]);
    team.for_chunks(rows, chunk_for(rows, team.size(), granule), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) run_row(row);
    });
  }

 private:
  void run_row(std::int64_t row) const noexcept {
    const std::array<std::int64_t, kMaxDims> at{0, row % shape_[1], row / shape_[1] % shape_[2],
                                                row / (shape_[1] * shape_[2])};
    const float* a = a_ + a_strides_.row(at);
    const float* b = b_ + b_strides_.row(at);
    float* y = dst_ + row * shape_[0];
    if (a_strides_.of[0] == b_strides_.of[0]) return apply_(a, b, shape_[0], y);
    const float* vector = a_strides_.of[0] != 0 ? a : b;
    const float scalar = a_strides_.of[0] != 0 ? *b : *a;
    for (std::int64_t i = 0; i < shape_[0]; ++i) y[i] = is_add_ ? vector[i] + scalar : vector[i] * scalar;
  }

  const bool is_add_;
  const BinaryFn apply_;
  const Shape shape_;
  const float* a_;
  const float* b_;
  float* dst_;
  const Strides a_strides_, b_strides_;
  const bool same_;
  const LiveRows elements_;
};

class Unary final : public BoundOp {
 public:
  Unary(const BindContext& c, const Node& node, Carver&)
      : p_(std::get<UnaryParams>(node.params)),
        vec_(c.kernels().vec),
        x_(c.data<const float>(node.src[0])),
        dst_(c.data<float>(node.dst[0])),
        elements_(c.live_rows(node.dst[0], 1)) {}
  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t n = elements_.of(counts);
    team.for_chunks(n, chunk_for(n, team.size(), kGrain),
                    [&](std::int64_t begin, std::int64_t end) { apply(x_ + begin, end - begin, dst_ + begin); });
  }

 private:
  void apply(const float* x, std::int64_t n, float* y) const noexcept {
    switch (p_.kind) {
      case UnaryKind::scale:
        return vec_.scale(x, p_.a, n, y);
      case UnaryKind::softcap:
        vec_.scale(x, 1.0f / p_.a, n, y);
        vec_.tanh(y, n, y);
        return vec_.scale(y, p_.a, n, y);
      case UnaryKind::clamp:
        for (std::int64_t i = 0; i < n; ++i) y[i] = std::clamp(x[i], -p_.a, p_.a);
        return;
      case UnaryKind::activation:
        return apply_activation(vec_, p_.act, x, n, y);
      case UnaryKind::sqrt:
        for (std::int64_t i = 0; i < n; ++i) y[i] = std::sqrt(x[i]);
        return;
    }
  }

  const UnaryParams p_;
  const VecKernels& vec_;
  const float* x_;
  float* dst_;
  const LiveRows elements_;
};

/// act(gate) * up from two tensors, or from the halves of one.
class Gated final : public BoundOp {
 public:
  Gated(const BindContext& c, const Node& node, Carver&)
      : p_(std::get<GatedParams>(node.params)),
        vec_(c.kernels().vec),
        n_(c.tensor(node.dst[0]).shape[0]),
        rows_(c.live_rows(node.dst[0], n_)),
        gate_(c.data<const float>(node.src[0])),
        dst_(c.data<float>(node.dst[0])) {
    const bool halves = node.src.size() == 1;
    stride_ = halves ? 2 * n_ : n_;
    up_ = halves ? gate_ == nullptr ? nullptr : gate_ + n_ : c.data<const float>(node.src[1]);
  }
  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      apply_gated(vec_, p_, gate_ + row * stride_, up_ + row * stride_, n_, dst_ + row * n_);
    }
  }

 private:
  const GatedParams p_;
  const VecKernels& vec_;
  const std::int64_t n_;
  const LiveRows rows_;
  const float* gate_;
  const float* up_ = nullptr;
  float* dst_;
  std::int64_t stride_ = 0;
};

class Softmax final : public BoundOp {
 public:
  Softmax(const BindContext& c, const Node& node, Carver&)
      : vec_(c.kernels().vec),
        n_(c.tensor(node.src[0]).shape[0]),
        rows_(c.live_rows(node.src[0], n_)),
        x_(c.data<const float>(node.src[0])),
        dst_(c.data<float>(node.dst[0])) {}
  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    for (std::int64_t row = own.begin; row < own.end; ++row) vec_.softmax(x_ + row * n_, n_, dst_ + row * n_);
  }

 private:
  const VecKernels& vec_;
  const std::int64_t n_;
  const LiveRows rows_;
  const float* x_;
  float* dst_;
};

/// Rounds rows with the kernel that products use, then turns the form back into values.
class QuantiseAct final : public BoundOp {
 public:
  QuantiseAct(const BindContext& c, const Node& node, Carver& carver)
      : form_(std::get<QuantiseActParams>(node.params).act),
        quantise_(c.kernels().act_of(form_)),
        n_(c.tensor(node.src[0]).shape[0]),
        rows_(c.live_rows(node.src[0], n_)),
        x_(c.data<const float>(node.src[0])),
        dst_(c.data<float>(node.dst[0])),
        row_(carver, c.n_workers(), static_cast<std::int64_t>(act_bytes(form_, n_, 1))) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    const ActView view = act_view(form_, row_.of(team), n_, 1);
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      quantise_(x_ + row * n_, n_, view, 0);
      decode(view, dst_ + row * n_);
    }
  }

 private:
  void decode(const ActView& view, float* y) const noexcept {
    if (form_ == ActType::f32 || form_ == ActType::f16 || form_ == ActType::bf16) {
      std::memcpy(y, view.data, sizeof(float) * static_cast<std::size_t>(n_));
      return;
    }
    for (std::int64_t i = 0; i < n_; ++i) {
      const auto& piece = *reinterpret_cast<const ActPiece*>(view.data + i / kActPiece * view.piece_stride);
      const std::int64_t at = i % kActPiece;
      y[i] = piece.d[at / 32] * static_cast<float>(piece.q[at]);
    }
  }

  const ActType form_;
  const QuantiseActFn quantise_;
  const std::int64_t n_;
  const LiveRows rows_;
  const float* x_;
  float* dst_;
  PerWorker<std::byte> row_;
};

const char* round_declines(const Graph&, const KernelTable& kernels, const Node& node) {
  return kernels.act_of(std::get<QuantiseActParams>(node.params).act) == nullptr ? "no kernel for this form" : nullptr;
}

}  // namespace

const OpImpl kAdd{"add", accepts_always, bind_as<Binary>};
const OpImpl kMul{"mul", accepts_always, bind_as<Binary>};
const OpImpl kUnary{"unary", accepts_always, bind_as<Unary>};
const OpImpl kGated{"gated", accepts_always, bind_as<Gated>};
const OpImpl kSoftmax{"softmax", accepts_always, bind_as<Softmax>};
const OpImpl kQuantiseAct{"quantise_act", round_declines, bind_as<QuantiseAct>};

}  // namespace ggml::cpu
