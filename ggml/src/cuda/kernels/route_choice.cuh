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
struct alignas(16) Ranking {
  int id[kWarp];        // of the best experts
  float weight[kWarp];  // likewise
};

__device__ __forceinline__ int count_lanes(int n) {
#if __CUDA_ARCH__ >= 800
  return static_cast<int>(__reduce_add_sync(~0u, static_cast<unsigned>(n)));
#else
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) n += __shfl_xor_sync(~0u, n, offset);
  return n;
#endif
}

/// Of up to 32 kEach experts each warp places some: an expert's place is the number of those before it, of which a lane
/// sees kEach. The places of four experts are bytes of one word.
template <int kWarps, int kEach>
__device__ __forceinline__ void rank_with(const RouteArgs& a, Ranking& ranking) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr int kBytes = 4;
  unsigned order[kEach];  // 0: no expert
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    order[i] = i * kWarp + lane < a.n_expert ? min(order_of(__ldcg(a.logits + i * kWarp + lane)), ~1u) : 0;
  }
#pragma unroll
  for (int from = warp; from - warp < kWarp; from += kWarps) {
#pragma unroll
    for (int first = 0; first < kEach; first += kBytes) {
      int before = 0;
#pragma unroll
      for (int i = first; i < first + kBytes; ++i) {  // experts 32 i + from; those with lower numbers win ties
        const unsigned own = __shfl_sync(~0u, order[i], from), more = own + 1, here = lane < from ? own : more;
#pragma unroll
        for (int other = 0; other < kEach; ++other) {
          before += order[other] >= (other < i ? own : other > i ? more : here) ? 1 << 8 * (i - first) : 0;
        }
      }
      before = count_lanes(before);
      const int place = before >> 8 * (lane % kBytes) & 255, expert = (first + lane) * kWarp + from;
      if (lane < kBytes && expert < a.n_expert && place < a.n_used) ranking.id[place] = expert;
    }
  }
}

/// Each expert's place is the number of those before it. Every thread of the block calls it; it ends with a barrier.
template <int kThreads>
__device__ __forceinline__ void rank_experts(const RouteArgs& a, Ranking& ranking) {
  constexpr int kWarps = kThreads / kWarp, kFew = 4;
  static_assert(kWarp % kWarps == 0);
  if (a.n_expert <= kFew * kWarp) {
    rank_with<kWarps, kFew>(a, ranking);
  } else {
    rank_with<kWarps, kMostRanked / kWarp>(a, ranking);
  }
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
