#include "cuda/kernels/route.h"

#include "cuda/kernels/activate.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/order.cuh"
#include "cuda/kernels/rounding.cuh"

namespace ggml::cuda {
namespace {

constexpr int kThreads = kWarp;  // a block per expert: its row comes from many multiprocessors at once
constexpr int kMostExperts = 512;
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

/// The place of the largest order among the lanes, ties to the lowest id.
__device__ __forceinline__ int best_id(unsigned order, int id) {
#if __CUDA_ARCH__ >= 800
  const unsigned largest = __reduce_max_sync(~0u, order);
  return static_cast<int>(__reduce_min_sync(~0u, order == largest ? static_cast<unsigned>(id) : ~0u));
#else
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const unsigned other = __shfl_xor_sync(~0u, order, offset);
    const int other_id = __shfl_xor_sync(~0u, id, offset);
    if (other > order || (other == order && other_id < id)) {
      order = other;
      id = other_id;
    }
  }
  return id;
#endif
}

/// One warp: scores of expert 32 i + lane, and their order with the selection's bias; 0: no expert.
template <int kEach>
__device__ __forceinline__ void score(const RouteArgs& a, int token, float (&scores)[kEach], unsigned (&order)[kEach]) {
  const int lane = static_cast<int>(threadIdx.x);
  const float* logits = a.logits + static_cast<std::int64_t>(token) * a.n_expert;
  float largest = -INFINITY, total = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int id = i * kWarp + lane;
    scores[i] = id < a.n_expert ? __ldcg(logits + id) : -INFINITY;
    largest = fmaxf(largest, scores[i]);
  }
  if (a.gating == Gating::softmax) {
    largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < kEach; ++i) total += scores[i] = expf(scores[i] - largest);
    total = warp_sum(total);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int id = i * kWarp + lane;
    if (a.gating == Gating::softmax) scores[i] /= total;
    if (a.gating == Gating::sigmoid) scores[i] = sigmoid(scores[i]);
    if (a.gating == Gating::sqrt_softplus) scores[i] = sqrtf(activate(Activation::softplus, scores[i]));
    const bool exists = id < a.n_expert;
    const float bias = exists && a.selection_bias != nullptr ? a.selection_bias[id] : 0.0f;
    order[i] = exists ? max(order_of(scores[i] + bias), 1u) : 0u;
  }
}

/// One warp: the n_used best experts and their weights.
template <int kEach>
__device__ void choose(const RouteArgs& a, int token) {
  const int lane = static_cast<int>(threadIdx.x);
  float scores[kEach];
  unsigned order[kEach];
  score<kEach>(a, token, scores, order);
  int chosen = -1;
  float value = 0;  // lane j: the j-th expert and its score
  for (int j = 0; j < a.n_used; ++j) {
    unsigned best = 0;
    int at = kMostExperts + lane;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (order[i] > best) {
        best = order[i];
        at = i * kWarp + lane;
      }
    }
    const int id = best_id(best, at);
    float mine = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i * kWarp + lane != id) continue;
      mine = scores[i];
      order[i] = 0;
    }
    mine = __shfl_sync(~0u, mine, id % kWarp);
    if (lane == j) {
      chosen = id;
      value = mine;
    }
  }
  const bool used = lane < a.n_used;
  if (a.gating == Gating::softmax_selected) {
    const float top = warp_max(used ? value : -INFINITY);
    value = used ? expf(value - top) : 0.0f;
    value /= warp_sum(value);
  }
  float divisor = 1.0f;
  if (a.normalise) divisor = fmaxf(warp_sum(used ? value : 0.0f), 6.103515625e-5f);
  if (!used) return;
  a.ids[token * a.n_used + lane] = chosen;
  a.weights[token * a.n_used + lane] = value / divisor * a.scale;
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
  choose<kEach>(a, token);
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
