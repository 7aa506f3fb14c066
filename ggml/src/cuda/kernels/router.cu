#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/staged_experts.h"
#include "cuda/kernels/staged_rows.cuh"

namespace ggml::cuda {
namespace {

/// A block per expert: each normalises the token for itself, with the sum of squares and the product in one pass.
__global__ void __launch_bounds__(kStagedThreads) router(const __grid_constant__ RouterArgs a) {
  __shared__ float2 sums[kStagedWarps];
  const int expert = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % kWarp;
  NormedRow row, scores;
  row.request_weights(a.norm);
  scores.request_weights({nullptr, a.router + static_cast<std::int64_t>(expert) * a.norm.n, a.norm.n, 0.0f});
  allow_next();
  float squares = 0, product = 0;
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {  // the first is a rehearsal
    if (pass == 1) wait_for_previous();
    load_values(a.norm.x, NormedRow::at(), a.norm.n, row.v);
    squares = product = 0;
#pragma unroll
    for (int j = 0; j < kLaneValues; ++j) {
      squares += row.v[j] * row.v[j];
      product += row.v[j] * row.weight[j] * scores.weight[j];
    }
    squares = warp_sum(squares);
    product = warp_sum(product);
    __syncthreads();
    if (lane == 0) sums[threadIdx.x / kWarp] = {squares, product};
    __syncthreads();
    squares = product = 0;
#pragma unroll
    for (const float2& s : sums) {
      squares += s.x;
      product += s.y;
    }
  }
  if (threadIdx.x != 0) return;
  float logit = product * rsqrtf(squares / static_cast<float>(a.norm.n) + a.norm.eps);
  if (a.epilogue.scale != nullptr) logit *= a.epilogue.scale[0];
  if (a.epilogue.bias != nullptr) logit += a.epilogue.bias[expert];
  a.logits[expert] = logit;
}

}  // namespace

void launch_router(const RouterArgs& args, cudaStream_t stream) {
  use_shared_memory(router, 0);
  launch(router, static_cast<unsigned>(args.n_expert), kStagedThreads, 0, stream, args);
}

}  // namespace ggml::cuda
