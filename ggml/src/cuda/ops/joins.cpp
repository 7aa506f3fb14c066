#include "cuda/kernels/joins.h"

#include "cuda/ops/head_product.h"
#include "cuda/ops/plane_kinds.h"
#include "cuda/ops/registry.h"

namespace ggml::cuda {
namespace {

// Primitives that cut, join and turn heads, and the product with one matrix per head.

class Slice final : public BoundOp {
 public:
  Slice(const BindContext& c, const Node& node, Carver&) {
    const auto& p = std::get<SliceParams>(node.params);
    a_.x = c.data<const float>(node.src[0]);
    a_.y = c.data<float>(node.dst[0]);
    a_.n = static_cast<int>(c.tensor(node.src[0]).shape[0]);
    a_.begin = p.begin;
    a_.count = p.count;
    a_.rows = c.rows(node.src[0], a_.n);
  }
  void launch(cudaStream_t stream) const override { launch_slice(a_, stream); }

 private:
  SliceArgs a_;
};

class Concat final : public BoundOp {
 public:
  Concat(const BindContext& c, const Node& node, Carver&) {
    const Shape &a = c.tensor(node.src[0]).shape, &b = c.tensor(node.src[1]).shape;
    a_.a = c.data<const float>(node.src[0]);
    a_.b = c.data<const float>(node.src[1]);
    a_.y = c.data<float>(node.dst[0]);
    a_.na = static_cast<int>(a[0]);
    a_.nb = static_cast<int>(b[0]);
    a_.rows_per_b = b[1] == 1 ? static_cast<int>(a[1]) : 1;
    a_.rows = c.rows(node.src[0], a_.na);
  }
  void launch(cudaStream_t stream) const override { launch_concat(a_, stream); }

 private:
  ConcatArgs a_;
};

class Hadamard final : public BoundOp {
 public:
  Hadamard(const BindContext& c, const Node& node, Carver&)
      : x_(c.data<const float>(node.src[0])),
        y_(c.data<float>(node.dst[0])),
        n_(static_cast<int>(c.tensor(node.src[0]).shape[0])),
        rows_(c.rows(node.src[0], n_)) {}
  void launch(cudaStream_t stream) const override { launch_hadamard(x_, y_, n_, rows_, stream); }

 private:
  const float* x_;
  float* y_;
  int n_;
  RowCount rows_;
};

const char* hadamard_declines(const Graph& graph, const Node& node) {
  return graph.at(node.src[0]).shape[0] > kMostHadamard ? "heads of more than 8192 elements" : nullptr;
}

class MulMatHeads final : public BoundOp {
 public:
  MulMatHeads(const BindContext& c, const Node& node, Carver& carver)
      : product_(c, node.src[0], std::get<MulMatHeadsParams>(node.params)),
        x_(c.data<const float>(node.src[1])),
        y_(c.data<float>(node.dst[0])),
        shared_(c.tensor(node.src[1]).shape[1] == 1),
        tokens_(c.rows(node.dst[0], std::int64_t{product_.count()} * product_.n_head())),
        input_(product_.act(), product_.k(), c.rows(node.src[1], product_.k()), carver) {}
  // As in mul_mat, rounding activations that come rounded changes nothing but the form.
  void launch(cudaStream_t stream) const override {
    input_.launch(x_, stream);
    product_.launch({input_.quantised(), input_.floats(x_), shared_}, y_, product_.count(), tokens_, stream);
  }

 private:
  HeadProduct product_;
  const float* x_;
  float* y_;
  bool shared_;
  RowCount tokens_;
  RoundedRows input_;
};

const char* mul_mat_heads_declines(const Graph& graph, const Node& node) {
  return why_not_projection(graph, Slot{node.src[0], {}, {}, false});
}

}  // namespace

HeadProduct::HeadProduct(const BindContext& context, TensorId weight, const MulMatHeadsParams& params)
    : projection_(context, Slot{weight, {}, {}, false}) {
  a_.w = context.weight(weight);
  a_.n_head = params.n_head;
  a_.rows_per_head = params.rows_per_head;
  a_.begin = params.begin;
  a_.count = params.count;
}

void HeadProduct::launch(const Input& x, float* y, std::int64_t y_stride, const RowCount& tokens,
                         cudaStream_t stream) const {
  HeadProductArgs a = a_;
  a.x = x.quantised;
  a.x_float = x.floats;
  a.shared = x.shared;
  a.y = y;
  a.y_stride = y_stride;
  a.tokens = tokens;
  if (projection_.is_quantised()) return launch_head_product(plane_kind(projection_.spec()), a, stream);
  launch_float_head_product(float_kind(projection_.spec().stored), a, stream);
}

const OpImpl kSlice{"slice", accepts_always, bind_as<Slice>};
const OpImpl kConcat{"concat", accepts_always, bind_as<Concat>};
const OpImpl kHadamard{"hadamard", hadamard_declines, bind_as<Hadamard>};
const OpImpl kMulMatHeads{"mul_mat_heads", mul_mat_heads_declines, bind_as<MulMatHeads>};

}  // namespace ggml::cuda
