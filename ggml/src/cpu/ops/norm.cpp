#include <algorithm>
#include <cmath>

#include "cpu/ops/registry.h"

namespace ggml::cpu {
namespace {

struct NormRow {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

/// One vector of any kind of norm.
void normalise_row(const VecKernels& vec, NormKind kind, float eps, const float* x, std::int64_t n, const NormRow& w,
                   float* dst) noexcept {
  switch (kind) {
    case NormKind::rms:
      vec.rms_norm(x, w.weight, eps, n, dst);
      if (w.bias != nullptr) vec.add(dst, w.bias, n, dst);
      return;
    case NormKind::layer:
      return vec.layer_norm(x, w.weight, w.bias, eps, n, dst);
    case NormKind::l2:
      vec.scale(x, 1.0f / std::max(std::sqrt(vec.dot(x, x, n)), eps), n, dst);
      if (w.weight != nullptr) vec.mul(dst, w.weight, n, dst);
      if (w.bias != nullptr) vec.add(dst, w.bias, n, dst);
      return;
  }
}

/// y = norm(x + residual) * weight + bias, with the sum kept when there is a residual.
class Norm final : public BoundOp {
 public:
  Norm(const BindContext& c, const Node& node, Carver&)
      : p_(std::get<NormParams>(node.params)),
        vec_(c.kernels().vec),
        n_(c.tensor(node.src[0]).shape[0]),
        rows_(c.live_rows(node.src[0], n_)),
        x_(c.data<const float>(node.src[0])),
        dst_(c.data<float>(node.dst[0])) {
    if (node.src.size() > 1) {
      residual_ = c.data<const float>(node.src[1]);
      sum_ = c.data<float>(node.dst[1]);
    }
    if (!p_.has_weight) return;
    weight_ = c.data<const float>(node.slots[0].weight);
    bias_ = c.data<const float>(node.slots[0].bias);
    weight_rows_ = c.tensor(node.slots[0].weight).shape[1];  // > 1: a weight of its own for each head
  }

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t rows = rows_.of(counts);
    team.for_chunks(rows, chunk_for(rows, team.size(), 1), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) run_row(row);
    });
  }

 private:
  void run_row(std::int64_t row) const noexcept {
    const float* x = x_ + row * n_;
    if (residual_ != nullptr) {
      vec_.add(x, residual_ + row * n_, n_, sum_ + row * n_);
      x = sum_ + row * n_;
    }
    const std::int64_t head = row % weight_rows_ * n_;
    normalise_row(vec_, p_.kind, p_.eps, x, n_,
                  {weight_ == nullptr ? nullptr : weight_ + head, bias_ == nullptr ? nullptr : bias_ + head},
                  dst_ + row * n_);
  }

  const NormParams p_;
  const VecKernels& vec_;
  const std::int64_t n_;
  const LiveRows rows_;
  const float* x_;
  float* dst_;
  const float* residual_ = nullptr;
  float* sum_ = nullptr;
  const float* weight_ = nullptr;
  const float* bias_ = nullptr;
  std::int64_t weight_rows_ = 1;
};

/// Primitive: the norm without weights.
class Normalise final : public BoundOp {
 public:
  Normalise(const BindContext& c, const Node& node, Carver&)
      : p_(std::get<NormaliseParams>(node.params)),
        vec_(c.kernels().vec),
        n_(c.tensor(node.src[0]).shape[0]),
        rows_(c.live_rows(node.src[0], n_)),
        x_(c.data<const float>(node.src[0])),
        dst_(c.data<float>(node.dst[0])) {}
  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      normalise_row(vec_, p_.kind, p_.eps, x_ + row * n_, n_, {}, dst_ + row * n_);
    }
  }

 private:
  const NormaliseParams p_;
  const VecKernels& vec_;
  const std::int64_t n_;
  const LiveRows rows_;
  const float* x_;
  float* dst_;
};

const char* declines(const Graph& graph, const KernelTable&, const Node& node) {
  const auto& p = std::get<NormParams>(node.params);
  if (!p.has_weight) return nullptr;
  const Slot& slot = node.slots[0];
  if (graph.at(slot.weight).type != DType::f32) return "a norm weight that is not F32";
  if (slot.bias.valid() && graph.at(slot.bias).type != DType::f32) return "a norm bias that is not F32";
  if (slot.scale.valid()) return "a norm with a scale";
  return nullptr;
}

}  // namespace

const OpImpl kNorm{"norm", declines, bind_as<Norm>};
const OpImpl kNormalise{"normalise", accepts_always, bind_as<Normalise>};

}  // namespace ggml::cpu
