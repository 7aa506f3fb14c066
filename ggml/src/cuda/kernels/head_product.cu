#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/decoder.cuh"
#include "cuda/kernels/device.cuh"
#include "cuda/kernels/joins.h"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/vector_product.cuh"

// One matrix per head (latent attention), for any number of tokens. A group of lanes has one row of one head's matrix
// and multiplies it with up to kTokensOfBlock rows of activations while it is there: weights are read once per so many
// tokens, from the L2 cache but for the first.
namespace ggml::cuda {
namespace {

constexpr int kTokensOfBlock = 8;

/// What a block works on, and where its rows lie.
struct HeadWork {
  int head, first_token, n_tokens;
  std::int64_t n;  // of [0, count): this group of lanes' row
  std::int64_t weight_row;

  __device__ HeadWork(const HeadProductArgs& a, int lanes)
      : head(static_cast<int>(blockIdx.y)), first_token(static_cast<int>(blockIdx.z) * kTokensOfBlock) {
    n = (static_cast<std::int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x) / lanes;
    weight_row = a.w.first + static_cast<std::int64_t>(head) * a.rows_per_head + a.begin + n;
    n_tokens = min(live(a.tokens) - first_token, kTokensOfBlock);
  }
  __device__ std::int64_t x_row(const HeadProductArgs& a, int token) const {
    const std::int64_t t = first_token + token;
    return a.shared ? t : t * a.n_head + head;
  }
  __device__ float* result(const HeadProductArgs& a, int token) const {
    return a.y + (static_cast<std::int64_t>(first_token + token) * a.n_head + head) * a.y_stride + n;
  }
};

/// Puts out the sums over a group of lanes.
__device__ __forceinline__ void put_sums(const HeadProductArgs& a, const HeadWork& w, float (&sum)[kTokensOfBlock],
                                         int lanes) {
#pragma unroll
  for (int t = 0; t < kTokensOfBlock; ++t) {
    if (t >= w.n_tokens) break;
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum[t] += __shfl_xor_sync(~0u, sum[t], offset);
    if (static_cast<int>(threadIdx.x) % lanes == 0 && w.n < a.count) *w.result(a, t) = sum[t];
  }
}

template <class D>
__global__ void __launch_bounds__(kVectorThreads) head_product(const __grid_constant__ HeadProductArgs a, int lanes) {
  begin_kernel();
  const HeadWork w(a, lanes);
  if (w.n_tokens <= 0) return;
  const int units = a.w.k / kUnit;
  float sum[kTokensOfBlock] = {};
  if (w.n < a.count) {
    for (int unit = static_cast<int>(threadIdx.x) % lanes; unit < units; unit += lanes) {
      D decoder;
      decoder.load(a.w, w.weight_row * units + unit);
      const Codes codes = decoder.codes();
      const Scales scales = decoder.scales();
#pragma unroll
      for (int t = 0; t < kTokensOfBlock; ++t) {
        if (t >= w.n_tokens) break;
        sum[t] += unit_product(decoder, codes, scales, a.x, w.x_row(a, t) * units + unit);
      }
    }
  }
  put_sums(a, w, sum, lanes);
}

/// A warp per weight row.
template <class T>
__global__ void __launch_bounds__(kVectorThreads) float_head_product(const __grid_constant__ HeadProductArgs a) {
  begin_kernel();
  const HeadWork w(a, kWarp);
  if (w.n_tokens <= 0) return;
  float sum[kTokensOfBlock] = {};
  if (w.n < a.count) {
    const T* weights = reinterpret_cast<const T*>(a.w.codes) + w.weight_row * a.w.k;
    for (int i = static_cast<int>(threadIdx.x) % kWarp; i < a.w.k; i += kWarp) {
      const float weight = static_cast<float>(weights[i]);
#pragma unroll
      for (int t = 0; t < kTokensOfBlock; ++t) {
        if (t >= w.n_tokens) break;
        sum[t] += weight * a.x_float[w.x_row(a, t) * a.w.k + i];
      }
    }
  }
  put_sums(a, w, sum, kWarp);
}

dim3 grid_of(const HeadProductArgs& args, int lanes) {
  return {static_cast<unsigned>((std::int64_t{args.count} * lanes + kVectorThreads - 1) / kVectorThreads),
          static_cast<unsigned>(args.n_head),
          static_cast<unsigned>((args.tokens.capacity + kTokensOfBlock - 1) / kTokensOfBlock)};
}

}  // namespace

void launch_head_product(PlaneKind kind, const HeadProductArgs& args, cudaStream_t stream) {
  const int lanes = lanes_per_row(args.w.k);
  with_decoder(
      kind, [&]<class D>() { launch(head_product<D>, grid_of(args, lanes), kVectorThreads, 0, stream, args, lanes); });
}

void launch_float_head_product(FloatKind kind, const HeadProductArgs& args, cudaStream_t stream) {
  auto* kernel = kind == FloatKind::f16    ? float_head_product<__half>
                 : kind == FloatKind::bf16 ? float_head_product<__nv_bfloat16>
                                           : float_head_product<float>;
  launch(kernel, grid_of(args, kWarp), kVectorThreads, 0, stream, args);
}

}  // namespace ggml::cuda
