#include "cuda/kernels/route.h"

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rounding.cuh"
#include "cuda/kernels/route_choice.cuh"

namespace ggml::cuda {
namespace {

constexpr int kThreads = kWarp;        // a block per expert: its row comes from many multiprocessors at once
constexpr int kRunValues = 4 * kWarp;  // of a row that a warp reads at once
constexpr int kAheadRuns = 16;

/// The logit of one expert: a warp reads the row 16 bytes per lane, the first runs before it waits.
__device__ float logit_of(const RouteArgs& a, int expert, int token) {
  const int lane = static_cast<int>(threadIdx.x);
  const float* row = a.router + static_cast<std::int64_t>(expert) * a.k;
  float4 ahead[kAheadRuns];
  auto request = [&](int first) {
#pragma unroll
    for (int i = 0; i < kAheadRuns; ++i) {
      const int at = first + i * kRunValues + 4 * lane;
      ahead[i] = at < a.k ? __ldcs(reinterpret_cast<const float4*>(row + at)) : float4{};
    }
  };
  request(0);
  wait_for_previous();
  if (token >= live(a.tokens)) return 0.0f;
  const float* x = a.x + static_cast<std::int64_t>(token) * a.k;
  float sum = 0;
  for (int first = 0; first < a.k; first += kAheadRuns * kRunValues) {
    if (first > 0) request(first);
#pragma unroll
    for (int i = 0; i < kAheadRuns; ++i) {
      const int at = first + i * kRunValues + 4 * lane;
      if (at >= a.k) break;
      const float4 v = *reinterpret_cast<const float4*>(x + at);
      sum += ahead[i].x * v.x + ahead[i].y * v.y + ahead[i].z * v.z + ahead[i].w * v.w;
    }
  }
  return warp_sum(sum);
}

template <int kEach>
__global__ void __launch_bounds__(kThreads) route(const __grid_constant__ RouteArgs a) {
  allow_next();
  const int token = static_cast<int>(blockIdx.y), expert = static_cast<int>(blockIdx.x);
  float logit = logit_of(a, expert, token);
  if (token >= live(a.tokens)) return;
  if (threadIdx.x == 0) {
    if (a.epilogue.scale != nullptr) logit *= a.epilogue.scale[0];
    if (a.epilogue.bias != nullptr) logit += a.epilogue.bias[expert];
    a.logits[static_cast<std::int64_t>(token) * a.n_expert + expert] = logit;
  }
  if (!last_to_arrive(a.arrived + token, static_cast<int>(gridDim.x))) return;
  const Choice chosen = choose<kEach>(a, token, a.n_used);
  if (static_cast<int>(threadIdx.x) >= a.n_used) return;
  const int at = token * a.n_used + static_cast<int>(threadIdx.x);
  a.ids[at] = chosen.id;
  a.weights[at] = chosen.weight;
}

}  // namespace

bool route_fits(int k, int n_expert, int n_used) {
  return k % 4 == 0 && n_expert <= kMostExperts && n_used <= kWarp;
}

void launch_route(const RouteArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.n_expert), static_cast<unsigned>(args.tokens.capacity));
  const int each = (args.n_expert + kWarp - 1) / kWarp;
  launch(each <= 4 ? route<4> : each <= 8 ? route<8> : route<16>, grid, kThreads, 0, stream, args);
}

}  // namespace ggml::cuda
