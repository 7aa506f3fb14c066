#pragma once

#include "cuda/kernels/activations.h"
#include "cuda/kernels/plane_kinds.h"
#include "cuda/kernels/products.h"

struct CUstream_st;

/// Kernels that cut, join and turn heads, and the product with one matrix per head.
namespace ggml::cuda {

/// y [count, rows] = x [n, rows] from element `begin` on.
struct SliceArgs {
  const float* x = nullptr;
  float* y = nullptr;
  int n = 0, begin = 0, count = 0;
  RowCount rows;
};
void launch_slice(const SliceArgs& args, CUstream_st* stream);

/// y [na + nb, rows] = a, then b, whose row serves `rows_per_b` rows of a.
struct ConcatArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  float* y = nullptr;
  int na = 0, nb = 0, rows_per_b = 1;
  RowCount rows;
};
void launch_concat(const ConcatArgs& args, CUstream_st* stream);

/// y = H x / sqrt(n) per row (ggml/hadamard.h). n is a power of two, at most kMostHadamard.
inline constexpr int kMostHadamard = 8192;
void launch_hadamard(const float* x, float* y, int n, const RowCount& rows, CUstream_st* stream);

/// y [count, n_head, tokens], y_stride from head to head: rows [begin, begin + count) of each head's matrix times the
/// head's row of x, or the token's where `shared`.
struct HeadProductArgs {
  PlanarWeight w;                  // heads one after another, rows_per_head each
  QuantisedRows x;                 // quantised types
  const float* x_float = nullptr;  // float types
  float* y = nullptr;
  std::int64_t y_stride = 0;
  int n_head = 0, rows_per_head = 0, begin = 0, count = 0;
  bool shared = false;
  RowCount tokens;
};
void launch_head_product(PlaneKind kind, const HeadProductArgs& args, CUstream_st* stream);
void launch_float_head_product(FloatKind kind, const HeadProductArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
