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

__device__ __forceinline__ void load_some(const float* p, float (&v)[1]) {
  v[0] = *p;
}
__device__ __forceinline__ void load_some(const float* p, float (&v)[4]) {
  const float4 all = *reinterpret_cast<const float4*>(p);
  v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
}

/// kEach neighbours of a row per thread; experts' values are requested some at a time.
template <int kEach>
__global__ void __launch_bounds__(kBlock) weighted_sum(const WeightedSumArgs a) {
  begin_kernel();
  const int per_row = a.n / kEach;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  const std::int64_t token = i / per_row;
  if (token >= live(a.tokens)) return;
  const int at = static_cast<int>(i % per_row) * kEach;
  float sum[kEach] = {};
#pragma unroll 4
  for (int j = 0; j < a.n_used; ++j) {
    const std::int64_t pair = token * a.n_used + j;
    const int id = a.ids[pair];
    const bool here = id >= a.begin && id < a.end;
    const float weight = a.weights == nullptr ? 1.0f : a.weights[pair];
    float v[kEach];
    load_some(a.x + pair * a.n + at, v);
#pragma unroll
    for (int e = 0; e < kEach; ++e) sum[e] += here ? weight * v[e] : 0.0f;
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) a.y[token * a.n + at + e] = sum[e];
}

constexpr int kSortThreads = 1024, kSortWarps = kSortThreads / kWarp;

/// Shared memory of the sort, in ints.
struct SortMemory {
  int* counts;   // [kSortWarps, n_expert]: pairs of an expert in a warp's range, then how many lie before it
  int* offsets;  // [n_expert + 1]
  int* tiles;    // [n_expert + 1]
};
__host__ __device__ constexpr int sort_ints(int n_expert) {
  return (kSortWarps + 2) * n_expert + 2;
}

/// Exclusive sums over the experts of their pairs and of their tiles; `offsets` holds the pairs. One warp.
__device__ void sum_experts(const SortArgs& a, const SortMemory& m) {
  const int lane = static_cast<int>(threadIdx.x);
  int before = 0, tiles_before = 0;
  for (int e0 = 0; e0 < a.n_expert; e0 += kWarp) {
    const int n = e0 + lane < a.n_expert ? m.offsets[e0 + lane] : 0;
    int sum = n, tiles = (n + a.tile_rows - 1) / a.tile_rows;
    const int own_tiles = tiles;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const int s = __shfl_up_sync(~0u, sum, offset), t = __shfl_up_sync(~0u, tiles, offset);
      if (lane >= offset) {
        sum += s;
        tiles += t;
      }
    }
    if (e0 + lane < a.n_expert) {
      m.offsets[e0 + lane] = before + sum - n;
      m.tiles[e0 + lane] = tiles_before + tiles - own_tiles;
    }
    before += __shfl_sync(~0u, sum, kWarp - 1);
    tiles_before += __shfl_sync(~0u, tiles, kWarp - 1);
  }
  if (lane == 0) {
    m.offsets[a.n_expert] = before;
    m.tiles[a.n_expert] = tiles_before;
  }
}

/// One block: each warp counts and places a range of the pairs; pairs of one expert keep their order, so that equal
/// steps give equal bytes.
__global__ void __launch_bounds__(kSortThreads) sort_by_expert(const SortArgs a) {
  extern __shared__ int memory[];
  begin_kernel();
  const SortMemory m{memory, memory + kSortWarps * a.n_expert, memory + (kSortWarps + 1) * a.n_expert + 1};
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int pairs = live(a.pairs), range = (pairs + kSortWarps - 1) / kSortWarps;
  const int begin = warp * range, end = min(pairs, begin + range);
  int* mine = m.counts + warp * a.n_expert;
  auto expert_of = [&](int p) {
    const int id = p < end ? a.ids[p] : -1;
    return id >= a.begin && id < a.end ? id : -1;
  };
  for (int i = thread; i < kSortWarps * a.n_expert; i += kSortThreads) m.counts[i] = 0;
  __syncthreads();
  for (int p = begin + lane; p < end; p += kWarp) {
    const int id = expert_of(p);
    if (id >= 0) atomicAdd(&mine[id], 1);
  }
  __syncthreads();
  for (int e = thread; e < a.n_expert; e += kSortThreads) {
    int sum = 0;
    for (int w = 0; w < kSortWarps; ++w) {
      const int n = m.counts[w * a.n_expert + e];
      m.counts[w * a.n_expert + e] = sum;
      sum += n;
    }
    m.offsets[e] = sum;
  }
  __syncthreads();
  if (warp == 0) sum_experts(a, m);
  __syncthreads();
  for (int p0 = begin; p0 < end; p0 += kWarp) {
    const int id = expert_of(p0 + lane);
    const unsigned same = __match_any_sync(~0u, id);
    const int before = __popc(same & ((1u << lane) - 1));
    const int at = id < 0 ? 0 : m.offsets[id] + mine[id] + before;
    __syncwarp();
    if (id >= 0) {
      a.sorted[at] = p0 + lane;
      if (before == 0) mine[id] += __popc(same);
    }
    __syncwarp();
  }
  for (int e = warp; e < a.n_expert; e += kSortWarps) {
    for (int t = m.tiles[e] + lane; t < m.tiles[e + 1]; t += kWarp) {
      const int first = m.offsets[e] + (t - m.tiles[e]) * a.tile_rows;
      a.tile_expert[t] = e;
      a.tile_first[t] = first;
      a.tile_count[t] = min(a.tile_rows, m.offsets[e + 1] - first);
    }
  }
  for (int t = m.tiles[a.n_expert] + thread; t < a.tile_capacity; t += kSortThreads) a.tile_expert[t] = -1;
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
  const std::int64_t all = static_cast<std::int64_t>(args.tokens.capacity) * args.n;
  if (args.n % 4 == 0 && reinterpret_cast<std::uintptr_t>(args.x) % 16 == 0) {
    return launch(weighted_sum<4>, blocks_for(all / 4), kBlock, 0, stream, args);
  }
  launch(weighted_sum<1>, blocks_for(all), kBlock, 0, stream, args);
}

void launch_sort_by_expert(const SortArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(sort_ints(args.n_expert)) * sizeof(int);
  if (bytes > 48 * 1024) {
    CUDA_CHECK(
        cudaFuncSetAttribute(sort_by_expert, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  }
  launch(sort_by_expert, 1, kSortThreads, bytes, stream, args);
}

}  // namespace ggml::cuda
