#pragma once

#include "cuda/kernels/activate.cuh"
#include "cuda/kernels/device.cuh"
#include "cuda/kernels/order.cuh"
#include "cuda/kernels/route.h"

/// The choice of experts by one warp.
namespace ggml::cuda {

inline constexpr int kMostExperts = 512;

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
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
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

/// Expert j of a token and its weight, in lane j; lanes beyond n_used: none.
struct Choice {
  int id = -1;
  float weight = 0.0f;
};

/// One warp: the `wanted` best experts; their weights are right if these are all n_used.
template <int kEach>
__device__ Choice choose(const RouteArgs& a, int token, int wanted) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float scores[kEach];
  unsigned order[kEach];
  score<kEach>(a, token, scores, order);
  Choice chosen;
  for (int j = 0; j < wanted; ++j) {
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
#pragma unroll
    for (int i = 0; i < kEach; ++i) order[i] = i * kWarp + lane == id ? 0 : order[i];
    if (lane == j) chosen.id = id;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float mine = __shfl_sync(~0u, scores[i], max(chosen.id, 0) % kWarp);
    if (chosen.id / kWarp == i) chosen.weight = mine;
  }
  const bool used = lane < a.n_used;
  float value = chosen.weight;
  if (a.gating == Gating::softmax_selected) {
    const float top = warp_max(used ? value : -INFINITY);
    value = used ? expf(value - top) : 0.0f;
    value /= warp_sum(value);
  }
  float divisor = 1.0f;
  if (a.normalise) divisor = fmaxf(warp_sum(used ? value : 0.0f), 6.103515625e-5f);
  chosen.weight = value / divisor * a.scale;
  return chosen;
}

// The same by all threads of a block, for kernels that use the experts of a single token: softmax, no bias, weights
// that are normalised. Then experts' order is that of their logits, and the sum over all of them cancels out.

inline constexpr int kMostRanked = 256;  // experts
struct alignas(16) Ranking {             // orders beyond the experts are 0
  unsigned order[kMostRanked];
  int rank[kMostRanked];
  int id[kWarp];        // of the best experts
  float weight[kWarp];  // likewise
};

/// Each expert's place is the number of those before it. Every thread of the block calls it; it ends with a barrier.
template <int kThreads>
__device__ __forceinline__ void rank_experts(const RouteArgs& a, Ranking& ranking) {
  const int thread = static_cast<int>(threadIdx.x), n = a.n_expert;
  constexpr int kAtOnce = 4;
  if (thread < kMostRanked) {
    ranking.order[thread] = thread < n ? order_of(__ldcg(a.logits + thread)) : 0;
    ranking.rank[thread] = 0;
  }
  __syncthreads();
  const int parts = kThreads / n, each = (n + kAtOnce * parts - 1) / (kAtOnce * parts) * kAtOnce, part = thread / n,
            expert = thread % n;
  if (part < parts) {
    const unsigned own = ranking.order[expert];
    const int end = min(n, (part + 1) * each);
    int before = 0;
#pragma unroll 4
    for (int other = part * each; other < end; other += kAtOnce) {
      const uint4 order = *reinterpret_cast<const uint4*>(ranking.order + other);
      before += order.x > own || (order.x == own && other < expert) ? 1 : 0;
      before += order.y > own || (order.y == own && other + 1 < expert) ? 1 : 0;
      before += order.z > own || (order.z == own && other + 2 < expert) ? 1 : 0;
      before += order.w > own || (order.w == own && other + 3 < expert) ? 1 : 0;
    }
    atomicAdd(ranking.rank + expert, before);
  }
  __syncthreads();
  if (thread < n && ranking.rank[thread] < a.n_used) ranking.id[ranking.rank[thread]] = thread;
  __syncthreads();
}

/// The weights of the ranked experts, by the first warp.
__device__ __forceinline__ void weigh_experts(const RouteArgs& a, Ranking& ranking) {
  const int lane = static_cast<int>(threadIdx.x);
  const float logit = lane < a.n_used ? __ldcg(a.logits + ranking.id[lane]) : -INFINITY;
  const float largest = __shfl_sync(~0u, logit, 0);
  const float e = lane < a.n_used ? expf(logit - largest) : 0.0f;
  ranking.weight[lane] = e / warp_sum(e) * a.scale;
}

}  // namespace ggml::cuda
