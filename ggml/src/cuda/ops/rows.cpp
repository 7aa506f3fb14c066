#include <vector>

#include "cuda/kernels/activations.h"
#include "cuda/kernels/selection.h"
#include "cuda/ops/projection.h"
#include "cuda/ops/registry.h"
#include "cuda/ops/rotation.h"

namespace ggml::cuda {
namespace {

// Ops over rows of activations: norms, arithmetic, rotation, selection.

class Norm final : public BoundOp {
 public:
  Norm(const BindContext& c, const Node& node, Carver&) {
    const auto& p = std::get<NormParams>(node.params);
    a_.x = c.data<const float>(node.src[0]);
    a_.n = static_cast<int>(c.tensor(node.src[0]).shape[0]);
    a_.y = c.data<float>(node.dst[0]);
    if (node.src.size() > 1) {
      a_.residual = c.data<const float>(node.src[1]);
      a_.sum = c.data<float>(node.dst[1]);
    }
    if (p.has_weight) {
      a_.weight = c.data<const float>(node.slots[0].weight);
      a_.bias = c.data<const float>(node.slots[0].bias);
      a_.heads = static_cast<int>(c.tensor(node.slots[0].weight).shape[1]);
    }
    a_.kind = p.kind;
    a_.eps = p.eps;
    a_.rows = c.rows(node.src[0], a_.n);
    set_rounded_outputs(c, node.dst[0], a_.n, a_.rows, a_.rounded);
  }
  void launch(cudaStream_t stream) const override { launch_norm(a_, stream); }

 private:
  NormArgs a_;
};

const char* norm_declines(const Graph& graph, const Node& node) {
  if (node.slots.empty()) return nullptr;
  if (graph.at(node.slots[0].weight).type != DType::f32) return "a weight that is not F32";
  return node.slots[0].scale.valid() ? "a scaled weight" : nullptr;
}

class Normalise final : public BoundOp {
 public:
  Normalise(const BindContext& c, const Node& node, Carver&) {
    const auto& p = std::get<NormaliseParams>(node.params);
    a_.x = c.data<const float>(node.src[0]);
    a_.y = c.data<float>(node.dst[0]);
    a_.n = static_cast<int>(c.tensor(node.src[0]).shape[0]);
    a_.kind = p.kind;
    a_.eps = p.eps;
    a_.rows = c.rows(node.src[0], a_.n);
  }
  void launch(cudaStream_t stream) const override { launch_norm(a_, stream); }

 private:
  NormArgs a_;
};

template <BinaryKind kKind>
class Binary final : public BoundOp {
 public:
  Binary(const BindContext& c, const Node& node, Carver&) {
    const Shape& y = c.tensor(node.dst[0]).shape;
    a_.a = c.data<const float>(node.src[0]);
    a_.b = c.data<const float>(node.src[1]);
    a_.y = c.data<float>(node.dst[0]);
    set_strides(c.tensor(node.src[0]).shape, a_.a_stride);
    set_strides(c.tensor(node.src[1]).shape, a_.b_stride);
    for (int axis = 0; axis < kMaxDims; ++axis) a_.shape[axis] = y[axis];
    a_.row = y[0];
    a_.rows = c.rows(node.dst[0], y[0]);
  }
  void launch(cudaStream_t stream) const override { launch_binary(kKind, a_, stream); }

 private:
  static void set_strides(const Shape& shape, std::int64_t (&stride)[4]) {
    std::int64_t s = 1;
    for (int axis = 0; axis < kMaxDims; ++axis) {
      stride[axis] = shape[axis] == 1 ? 0 : s;
      s *= shape[axis];
    }
  }
  BinaryArgs a_;
};

const char* binary_declines(const Graph& graph, const Node& node) {
  for (const TensorId id : node.src) {
    if (graph.at(id).type != DType::f32) return "an operand that is not F32";
  }
  return nullptr;
}

class Unary final : public BoundOp {
 public:
  Unary(const BindContext& c, const Node& node, Carver&)
      : p_(std::get<UnaryParams>(node.params)),
        x_(c.data<const float>(node.src[0])),
        y_(c.data<float>(node.dst[0])),
        width_(c.tensor(node.src[0]).shape[0]),
        rows_(c.rows(node.src[0], width_)) {}
  void launch(cudaStream_t stream) const override { launch_unary(p_, x_, y_, width_, rows_, stream); }

 private:
  UnaryParams p_;
  const float* x_;
  float* y_;
  std::int64_t width_;
  RowCount rows_;
};

class Gated final : public BoundOp {
 public:
  Gated(const BindContext& c, const Node& node, Carver&) : p_(std::get<GatedParams>(node.params)) {
    a_.width = c.tensor(node.dst[0]).shape[0];
    a_.gate = c.data<const float>(node.src[0]);
    const bool halves = node.src.size() == 1;
    a_.up = halves ? (a_.gate == nullptr ? nullptr : a_.gate + a_.width) : c.data<const float>(node.src[1]);
    a_.stride = halves ? 2 * a_.width : a_.width;
    a_.y = c.data<float>(node.dst[0]);
    a_.rows = c.rows(node.dst[0], a_.width);
  }
  void launch(cudaStream_t stream) const override { launch_gated(p_, a_, stream); }

 private:
  GatedParams p_;
  GatedArgs a_;
};

class QuantiseAct final : public BoundOp {
 public:
  QuantiseAct(const BindContext& c, const Node& node, Carver&)
      : act_(std::get<QuantiseActParams>(node.params).act),
        x_(c.data<const float>(node.src[0])),
        y_(c.data<float>(node.dst[0])),
        k_(static_cast<int>(c.tensor(node.src[0]).shape[0])),
        rows_(c.rows(node.src[0], k_)) {}
  void launch(cudaStream_t stream) const override { launch_round(act_, x_, y_, k_, rows_, stream); }

 private:
  ActType act_;
  const float* x_;
  float* y_;
  int k_;
  RowCount rows_;
};

/// Rotates one tensor (rotate) or several that share their angles (rope).
class Rotate final : public BoundOp {
 public:
  Rotate(const BindContext& c, const Node& node, Carver&) {
    const auto& p = std::get<RopeParams>(node.params);
    const RotateArgs angles = rotation(c, p, node.src);
    const std::size_t first = p.has_factors ? 2 : 1;
    for (std::size_t i = first; i < node.src.size(); ++i) {
      const Shape& shape = c.tensor(node.src[i]).shape;
      RotateArgs a = angles;
      a.x = c.data<const float>(node.src[i]);
      a.y = c.data<float>(node.dst[i - first]);
      a.d = static_cast<int>(shape[0]);
      a.heads = static_cast<int>(shape[1]);
      a.tokens = c.rows(node.src[i], shape[0] * shape[1]);
      all_.push_back(a);
    }
  }
  void launch(cudaStream_t stream) const override {
    for (const RotateArgs& a : all_) launch_rotate(a, stream);
  }

 private:
  std::vector<RotateArgs> all_;
};

class Softmax final : public BoundOp {
 public:
  Softmax(const BindContext& c, const Node& node, Carver&)
      : x_(c.data<const float>(node.src[0])),
        y_(c.data<float>(node.dst[0])),
        n_(static_cast<int>(c.tensor(node.src[0]).shape[0])),
        rows_(c.rows(node.src[0], n_)) {}
  void launch(cudaStream_t stream) const override { launch_softmax(x_, y_, n_, rows_, stream); }

 private:
  const float* x_;
  float* y_;
  int n_;
  RowCount rows_;
};

class TopK final : public BoundOp {
 public:
  TopK(const BindContext& c, const Node& node, Carver&) {
    const auto& p = std::get<TopKParams>(node.params);
    a_.x = c.data<const float>(node.src[0]);
    a_.ids = c.data<std::int32_t>(node.dst[0]);
    a_.n = static_cast<int>(c.tensor(node.src[0]).shape[0]);
    a_.k = p.k;
    a_.n_groups = p.n_groups;
    a_.n_groups_used = p.n_groups_used;
    a_.min_kept = p.min_kept;
    a_.keep_ratio = p.keep_ratio;
    a_.rows = c.rows(node.src[0], a_.n);
  }
  void launch(cudaStream_t stream) const override { launch_top_k(a_, stream); }

 private:
  TopKArgs a_;
};

class Gather final : public BoundOp {
 public:
  Gather(const BindContext& c, const Node& node, Carver&) {
    const auto& p = std::get<GatherParams>(node.params);
    const Tensor& x = c.tensor(node.src[0]);
    a_.x = c.data<const float>(node.src[0]);
    a_.ids = c.data<const std::int32_t>(node.src[1]);
    a_.y = c.data<float>(node.dst[0]);
    a_.n = static_cast<int>(x.shape[0]);
    a_.k = static_cast<int>(c.tensor(node.src[1]).shape[0]);
    a_.x_stride = x.rows == Rows::fixed && x.shape[1] == 1 ? 0 : a_.n;
    a_.softmax = p.softmax;
    a_.normalise = p.normalise;
    a_.scale = p.scale;
    a_.rows = c.rows(node.src[1], a_.k);
  }
  void launch(cudaStream_t stream) const override { launch_gather(a_, stream); }

 private:
  GatherArgs a_;
};

class WeightedSum final : public BoundOp {
 public:
  WeightedSum(const BindContext& c, const Node& node, Carver&) {
    const auto& p = std::get<WeightedSumParams>(node.params);
    const Shape& shape = c.tensor(node.src[0]).shape;
    a_.x = c.data<const float>(node.src[0]);
    a_.ids = c.data<const std::int32_t>(node.src[1]);
    a_.weights = node.src.size() > 2 ? c.data<const float>(node.src[2]) : nullptr;
    a_.y = c.data<float>(node.dst[0]);
    a_.n = static_cast<int>(shape[0]);
    a_.n_used = static_cast<int>(shape[1]);
    a_.begin = p.expert_begin;
    a_.end = p.expert_end == 0 ? INT32_MAX : p.expert_end;
    a_.tokens = c.rows(node.src[1], a_.n_used);
  }
  void launch(cudaStream_t stream) const override { launch_weighted_sum(a_, stream); }

 private:
  WeightedSumArgs a_;
};

class Copy final : public BoundOp {
 public:
  Copy(const BindContext& c, const Node& node, Carver&)
      : x_(c.data<const std::byte>(node.src[0])), y_(c.data<std::byte>(node.dst[0])) {
    const Tensor& t = c.tensor(node.src[0]);
    width_ = t.shape[0];
    rows_ = c.rows(node.src[0], width_);
  }
  void launch(cudaStream_t stream) const override { launch_copy(x_, y_, width_, rows_, stream); }

 private:
  const std::byte* x_;
  std::byte* y_;
  std::int64_t width_ = 0;
  RowCount rows_;
};

const char* copy_declines(const Graph& graph, const Node& node) {
  const DType type = graph.at(node.src[0]).type;
  return type == DType::f32 || type == DType::i32 ? nullptr : "values that are not 32 bits wide";
}

}  // namespace

const OpImpl kNorm{"norm", norm_declines, bind_as<Norm>};
const OpImpl kNormalise{"normalise", accepts_always, bind_as<Normalise>};
const OpImpl kAdd{"add", binary_declines, bind_as<Binary<BinaryKind::add>>};
const OpImpl kMul{"mul", binary_declines, bind_as<Binary<BinaryKind::mul>>};
const OpImpl kUnary{"unary", accepts_always, bind_as<Unary>};
const OpImpl kGated{"gated", accepts_always, bind_as<Gated>};
const OpImpl kQuantiseAct{"quantise_act", accepts_always, bind_as<QuantiseAct>};
const OpImpl kRope{"rope", accepts_always, bind_as<Rotate>};
const OpImpl kRotate{"rotate", accepts_always, bind_as<Rotate>};
const OpImpl kSoftmax{"softmax", accepts_always, bind_as<Softmax>};
const OpImpl kTopK{"top_k", accepts_always, bind_as<TopK>};
const OpImpl kGather{"gather", accepts_always, bind_as<Gather>};
const OpImpl kWeightedSum{"weighted_sum", accepts_always, bind_as<WeightedSum>};
const OpImpl kCopy{"copy", copy_declines, bind_as<Copy>};

}  // namespace ggml::cuda
