#pragma once

#include "cuda/kernels/decoder.cuh"
#include "cuda/kernels/device.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/products.h"

// y = W x for few rows of activations (decoding): every weight is read once. Several matrices, of any kinds of planes,
// can be multiplied by one launch: a block works on one of them.
//
// A group of 4 to 32 lanes computes one weight row; a lane takes every group-size-th unit of 32 weights, four of them
// in flight. Bound by memory: the codes plane is read with 16 bytes per lane. Weights of a single matrix do not depend
// on the kernel before, so the first four units are requested before the wait for it.
namespace ggml::cuda {

inline constexpr int kVectorThreads = 128;
inline constexpr int kAhead = 4;

/// Lanes per weight row, so that each has about kAhead units.
inline int lanes_per_row(int k) {
  int lanes = 4;
  while (lanes < kWarp && lanes * kAhead < k / kUnit) lanes *= 2;
  return lanes;
}

struct RowChoice {
  std::int64_t weight_row;  // in the stack
  std::int64_t expert;
  int x_row;
  bool zero;
};

/// The matrix and the input row of result row `pair`.
__device__ __forceinline__ RowChoice choose_row(const ProductArgs& a, int pair, std::int64_t n) {
  if (a.experts.ids == nullptr) return {a.w.first + n, 0, pair, false};
  const int id = __ldcg(a.experts.ids + pair);  // may be read before the wait (expert_rows.h)
  const bool zero = id < a.experts.begin || id >= a.experts.end;
  return {a.w.first + id * a.w.rows_per_matrix + n, id, a.experts.shared_input ? pair / a.experts.n_used : pair, zero};
}

__device__ __forceinline__ float finish(const ProductArgs& a, float v, std::int64_t n, std::int64_t expert) {
  if (a.epilogue.scale != nullptr) v *= a.epilogue.scale[a.epilogue.scale_per_expert ? expert : 0];
  if (a.epilogue.bias != nullptr) v += a.epilogue.bias[expert * a.epilogue.bias_stride + n];
  return v;
}

/// A unit of weights times the same unit of one activation row.
template <class D>
__device__ __forceinline__ float unit_product(const D& decoder, const Codes& codes, const Scales& scales,
                                              const QuantisedRows& x, std::int64_t unit_of_x) {
  const uint4* q = reinterpret_cast<const uint4*>(x.q) + 2 * unit_of_x;
  const uint4 a = q[0], b = q[1];
  int first = __dp4a(codes.word[0], static_cast<int>(a.x), 0);
  first = __dp4a(codes.word[1], static_cast<int>(a.y), first);
  first = __dp4a(codes.word[2], static_cast<int>(a.z), first);
  first = __dp4a(codes.word[3], static_cast<int>(a.w), first);
  int second = __dp4a(codes.word[4], static_cast<int>(b.x), D::kHalves ? 0 : first);
  second = __dp4a(codes.word[5], static_cast<int>(b.y), second);
  second = __dp4a(codes.word[6], static_cast<int>(b.z), second);
  second = __dp4a(codes.word[7], static_cast<int>(b.w), second);
  const float d = x.d[unit_of_x];
  float sum;
  if constexpr (D::kHalves) {
    sum = d * (scales.scale[0] * static_cast<float>(first) + scales.scale[1] * static_cast<float>(second));
  } else {
    sum = d * scales.scale[0] * static_cast<float>(second);
  }
  if constexpr (D::kAdds) {
    const float2 s = reinterpret_cast<const float2*>(x.s)[unit_of_x];
    sum += D::kHalves ? scales.add[0] * s.x + scales.add[1] * s.y : scales.add[0] * (s.x + s.y);
  }
  return sum;
}

/// Result rows of block `block` of one matrix. Calls wait_for_previous().
template <class D, int kRows>
__device__ __forceinline__ void multiply_rows(const ProductArgs& a, int lanes, int block) {
  const int thread = block * kVectorThreads + static_cast<int>(threadIdx.x);
  const std::int64_t n = thread / lanes;
  const int lane = thread % lanes;
  const int units = a.w.k / kUnit;
  const int first_row = static_cast<int>(blockIdx.y) * kRows;  // of the results
  const bool early = a.experts.ids == nullptr && n < a.w.n;
  D ahead[kAhead];
  auto request = [&](std::int64_t row, int unit) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (unit + i * lanes < units) ahead[i].load(a.w, row * units + unit + i * lanes);
    }
  };
  if (early) request(a.w.first + n, lane);
  wait_for_previous();
  const int rows = live(a.rows);
  if (first_row >= rows) return;
  RowChoice choice{0, 0, 0, true};
  if (n < a.w.n) choice = choose_row(a, first_row, n);
  float sum[kRows] = {};
  if (!choice.zero) {
    if (!early) request(choice.weight_row, lane);
    for (int unit = lane; unit < units; unit += kAhead * lanes) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int at = unit + i * lanes;
        if (at >= units) break;
        const Codes codes = ahead[i].codes();
        const Scales scales = ahead[i].scales();
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (kRows > 1 && first_row + r >= rows) break;
          sum[r] +=
              unit_product(ahead[i], codes, scales, a.x, static_cast<std::int64_t>(choice.x_row + r) * units + at);
        }
      }
      if (unit + kAhead * lanes < units) request(choice.weight_row, unit + kAhead * lanes);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum[r] += __shfl_xor_sync(~0u, sum[r], offset);
    if (lane != 0 || n >= a.w.n || first_row + r >= rows) continue;
    a.y[static_cast<std::int64_t>(first_row + r) * a.y_stride + n] =
        choice.zero ? 0.0f : finish(a, sum[r], n, choice.expert);
  }
}

template <int kRows>
__global__ void __launch_bounds__(kVectorThreads) row_products(const __grid_constant__ RowProducts p) {
  allow_next();
  const int block = static_cast<int>(blockIdx.x);
  int part = 0;
#pragma unroll
  for (int i = 1; i < kMaxProducts; ++i) part += i < p.n && block >= p.first_block[i] ? 1 : 0;
  with_decoder(p.kind[part], [&]<class D>() {
    multiply_rows<D, kRows>(p.product[part], p.lanes[part], block - p.first_block[part]);
  });
}

/// kRows activation rows per block; the products are laid out already.
template <int kRows>
void launch_row_products_of(const RowProducts& products, unsigned blocks, cudaStream_t stream) {
  const int rows = products.product[0].rows.capacity;
  launch(row_products<kRows>, dim3(blocks, static_cast<unsigned>((rows + kRows - 1) / kRows)), kVectorThreads, 0,
         stream, products);
}

}  // namespace ggml::cuda
