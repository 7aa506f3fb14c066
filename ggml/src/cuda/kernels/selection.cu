#include "cuda/kernels/selection.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/device.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/order.cuh"

namespace ggml::cuda {
namespace {

constexpr int kBlock = 256;

unsigned blocks_for(std::int64_t n) {
  return static_cast<unsigned>((n + kBlock - 1) / kBlock);
}

template <class T>
__global__ void __launch_bounds__(kBlock) get_float_rows(const __grid_constant__ GetRowsArgs a) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  const std::int64_t row = i / a.k;
  if (row >= live(a.rows)) return;
  const std::int64_t id = a.ids[row];
  const std::int64_t rows = a.table_live.count == nullptr ? a.table_rows : live(a.table_live);
  a.y[i] = id >= 0 && id < rows ? static_cast<float>(static_cast<const T*>(a.float_table)[id * a.k + i % a.k]) : 0.0f;
}

__global__ void __launch_bounds__(kBlock) softmax(const float* x, float* y, int n, RowCount rows) {
  __shared__ float shared[kWarp];
  begin_kernel();
  const std::int64_t row = blockIdx.x;
  if (row >= live(rows)) return;
  float largest = -INFINITY;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kBlock) largest = fmaxf(largest, x[row * n + i]);
  largest = block_max(largest, shared);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kBlock) sum += expf(x[row * n + i] - largest);
  sum = block_sum(sum, shared);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kBlock) y[row * n + i] = expf(x[row * n + i] - largest) / sum;
}

/// Value first, then the lower id.
__device__ unsigned long long key_of(float v, int id) {
  return static_cast<unsigned long long>(order_of(v)) << 32 | (0xffffffffu - static_cast<unsigned>(id));
}

__device__ unsigned long long block_best(unsigned long long key, unsigned long long* shared) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) key = max(key, __shfl_xor_sync(~0u, key, offset));
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = key;
  __syncthreads();
  key = shared[0];
#pragma unroll
  for (int i = 1; i < kBlock / kWarp; ++i) key = max(key, shared[i]);
  return key;
}

/// Marks the values outside the best groups with -inf. `values` [n], `scores` [n_groups].
__device__ void limit_to_groups(const TopKArgs& a, float* values, float* scores) {
  const int size = a.n / a.n_groups;
  for (int g = static_cast<int>(threadIdx.x); g < a.n_groups; g += kBlock) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      const float v = values[i];
      if (v > first) {
        second = first;
        first = v;
      } else if (v > second) {
        second = v;
      }
    }
    scores[g] = size > 1 ? first + second : first;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < a.n; i += kBlock) {
    const int g = i / size;
    int better = 0;
    for (int other = 0; other < a.n_groups; ++other) {
      better += scores[other] > scores[g] || (scores[other] == scores[g] && other < g);
    }
    if (better >= a.n_groups_used) values[i] = -INFINITY;
  }
  __syncthreads();
}

/// A block per token; k rounds of a reduction (k is the experts used, at most a few dozen).
__global__ void __launch_bounds__(kBlock) top_k(const TopKArgs a) {
  extern __shared__ float values[];  // [n], then [n_groups]
  __shared__ unsigned long long shared[kBlock / kWarp];
  begin_kernel();
  const std::int64_t row = blockIdx.x;
  if (row >= live(a.rows)) return;
  for (int i = static_cast<int>(threadIdx.x); i < a.n; i += kBlock) values[i] = a.x[row * a.n + i];
  __syncthreads();
  if (a.n_groups > 1) limit_to_groups(a, values, values + a.n);
  unsigned long long below = ~0ull;  // the key chosen last
  float least = -INFINITY;
  for (int k = 0; k < a.k; ++k) {
    unsigned long long best = 0;
    for (int i = static_cast<int>(threadIdx.x); i < a.n; i += kBlock) {
      const unsigned long long key = key_of(values[i], i);
      if (key < below && key > best) best = key;
    }
    best = block_best(best, shared);
    const auto id = static_cast<std::int32_t>(0xffffffffu - static_cast<unsigned>(best));
    if (k == 0 && a.keep_ratio > 0) least = a.keep_ratio * values[id];
    const bool kept = a.keep_ratio <= 0 || k < a.min_kept || values[id] >= least;
    if (threadIdx.x == 0) a.ids[row * a.k + k] = kept ? id : -1;
    below = best;
  }
}

__global__ void __launch_bounds__(kWarp) gather(const GatherArgs a) {
  begin_kernel();
  const std::int64_t row = blockIdx.x;
  if (row >= live(a.rows)) return;
  const int lane = static_cast<int>(threadIdx.x);
  auto value = [&](int j) {
    const int id = a.ids[row * a.k + j];
    return id >= 0 && id < a.n ? a.x[row * a.x_stride + id] : a.softmax ? -INFINITY : 0.0f;
  };
  float largest = -INFINITY, sum = 0;
  if (a.softmax) {
    for (int j = lane; j < a.k; j += kWarp) largest = fmaxf(largest, value(j));
    largest = warp_max(largest);
    for (int j = lane; j < a.k; j += kWarp) sum += expf(value(j) - largest);
    sum = warp_sum(sum);
  }
  auto weight = [&](int j) { return a.softmax ? expf(value(j) - largest) / sum : value(j); };
  float divisor = 1.0f;
  if (a.normalise) {
    float total = 0;
    for (int j = lane; j < a.k; j += kWarp) total += weight(j);
    divisor = fmaxf(warp_sum(total), 6.103515625e-5f);
  }
  for (int j = lane; j < a.k; j += kWarp) a.y[row * a.k + j] = weight(j) / divisor * a.scale;
}

__global__ void __launch_bounds__(kBlock) weighted_sum(const WeightedSumArgs a) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  const std::int64_t token = i / a.n;
  if (token >= live(a.tokens)) return;
  float sum = 0;
  for (int j = 0; j < a.n_used; ++j) {
    const std::int64_t pair = token * a.n_used + j;
    const int id = a.ids[pair];
    if (id < a.begin || id >= a.end) continue;
    sum += (a.weights == nullptr ? 1.0f : a.weights[pair]) * a.x[pair * a.n + i % a.n];
  }
  a.y[i] = sum;
}

constexpr int kSortThreads = 1024;

/// One block: counts, offsets, then places; pairs of one expert keep their order, so that equal steps give equal bytes.
__global__ void __launch_bounds__(kSortThreads) sort_by_expert(const SortArgs a) {
  extern __shared__ int counts[];  // [n_expert], then offsets [n_expert + 1], then tile offsets [n_expert + 1]
  begin_kernel();
  int* offsets = counts + a.n_expert;
  int* tiles = offsets + a.n_expert + 1;
  const int pairs = live(a.pairs);
  for (int e = static_cast<int>(threadIdx.x); e < a.n_expert; e += kSortThreads) counts[e] = 0;
  __syncthreads();
  auto used = [&](int id) { return id >= a.begin && id < a.end; };
  for (int p = static_cast<int>(threadIdx.x); p < pairs; p += kSortThreads) {
    const int id = a.ids[p];
    if (used(id)) atomicAdd(&counts[id], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    offsets[0] = tiles[0] = 0;
    for (int e = 0; e < a.n_expert; ++e) {
      offsets[e + 1] = offsets[e] + counts[e];
      tiles[e + 1] = tiles[e] + (counts[e] + kTileRows - 1) / kTileRows;
    }
  }
  __syncthreads();
  // A warp per expert walks the pairs and places its own in order.
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int e = warp; e < a.n_expert; e += kSortThreads / kWarp) {
    int at = offsets[e];
    if (counts[e] == 0) continue;
    for (int p0 = 0; p0 < pairs; p0 += kWarp) {
      const int p = p0 + lane;
      const bool mine = p < pairs && a.ids[p] == e;
      const unsigned ballot = __ballot_sync(~0u, mine);
      if (mine) a.sorted[at + __popc(ballot & ((1u << lane) - 1))] = p;
      at += __popc(ballot);
    }
    for (int t = tiles[e] + lane; t < tiles[e + 1]; t += kWarp) {
      const int first = offsets[e] + (t - tiles[e]) * kTileRows;
      a.tile_expert[t] = e;
      a.tile_first[t] = first;
      a.tile_count[t] = min(kTileRows, offsets[e + 1] - first);
    }
  }
  for (int t = tiles[a.n_expert] + static_cast<int>(threadIdx.x); t < a.tile_capacity; t += kSortThreads)
    a.tile_expert[t] = -1;
}

}  // namespace

void launch_get_float_rows(FloatKind kind, const GetRowsArgs& args, cudaStream_t stream) {
  const unsigned blocks = blocks_for(static_cast<std::int64_t>(args.rows.capacity) * args.k);
  switch (kind) {
    case FloatKind::f32:
      return launch(get_float_rows<float>, blocks, kBlock, 0, stream, args);
    case FloatKind::f16:
      return launch(get_float_rows<__half>, blocks, kBlock, 0, stream, args);
    case FloatKind::bf16:
      return launch(get_float_rows<__nv_bfloat16>, blocks, kBlock, 0, stream, args);
  }
}

void launch_softmax(const float* x, float* y, int n, const RowCount& rows, cudaStream_t stream) {
  launch(softmax, static_cast<unsigned>(rows.capacity), kBlock, 0, stream, x, y, n, rows);
}

void launch_top_k(const TopKArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(args.n + args.n_groups) * sizeof(float);
  launch(top_k, static_cast<unsigned>(args.rows.capacity), kBlock, bytes, stream, args);
}

void launch_gather(const GatherArgs& args, cudaStream_t stream) {
  launch(gather, static_cast<unsigned>(args.rows.capacity), kWarp, 0, stream, args);
}

void launch_weighted_sum(const WeightedSumArgs& args, cudaStream_t stream) {
  launch(weighted_sum, blocks_for(static_cast<std::int64_t>(args.tokens.capacity) * args.n), kBlock, 0, stream, args);
}

void launch_sort_by_expert(const SortArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(3 * args.n_expert + 2) * sizeof(int);
  launch(sort_by_expert, 1, kSortThreads, bytes, stream, args);
}

}  // namespace ggml::cuda
