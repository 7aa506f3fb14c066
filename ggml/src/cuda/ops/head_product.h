#pragma once

#include "cuda/kernels/joins.h"
#include "cuda/ops/projection.h"

namespace ggml::cuda {

/// One matrix per head, all in one weight, bound to its kernels.
class HeadProduct {
 public:
  HeadProduct(const BindContext& context, TensorId weight, const MulMatHeadsParams& params);
  [[nodiscard]] ActType act() const { return projection_.act(); }
  [[nodiscard]] int k() const { return projection_.k(); }
  [[nodiscard]] int n_head() const { return a_.n_head; }
  [[nodiscard]] int count() const { return a_.count; }

  /// Rows of activations in the form that act() says; `shared`: one per token instead of one per head.
  struct Input {
    QuantisedRows quantised;
    const float* floats = nullptr;
    bool shared = false;
  };
  /// y [count, n_head, tokens], y_stride elements from head to head.
  void launch(const Input& x, float* y, std::int64_t y_stride, const RowCount& tokens, cudaStream_t stream) const;

 private:
  Projection projection_;
  HeadProductArgs a_;
};

}  // namespace ggml::cuda
