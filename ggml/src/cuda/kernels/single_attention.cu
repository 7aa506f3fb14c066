#include "cuda/kernels/single_attention.h"

#include "cuda/kernels/kv_access.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rounding.cuh"
#include "cuda/kernels/turn.cuh"

// A cluster of 16 blocks has up to four query heads that share a key head. Its 128 warps take cells in turn, two at a
// time (heads of at most 64: four); half a warp holds one key or value, eight elements a lane, and keeps a maximum, a
// sum and weighted values (arXiv:2205.14135). They are joined in each block and put into the memory of the first
// blocks, which join them all: that saves the way to the card's memory and back, twice, which a counter would cost.
// Loops are kept short rather than unrolled: most instructions run once or twice, and reading them costs more than they
// do.
namespace ggml::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kCluster = 16;
constexpr int kAllWarps = kCluster * kWarps;
constexpr int kMostPack = 4;   // query heads of a cluster
constexpr int kMostDim = 128;  // of a head
constexpr int kEach = kMostDim / kWarp, kTurns = kMostDim / 2 / kWarp;

int pack_of(int group) {
  return group < kMostPack ? group : kMostPack;
}

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// Writes a float to the same place in the memory of another block of the cluster.
__device__ __forceinline__ void put_remote(const float* p, int rank, float v) {
  unsigned at;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(at)
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(p))), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}
#else  // never launched
__device__ __forceinline__ void cluster_arrive() {}
__device__ __forceinline__ void cluster_wait() {}
__device__ __forceinline__ void put_remote(const float*, int, float) {}
#endif

template <int kPack>
struct alignas(16) Memory {
  float q[kPack][kMostDim];
  float k[kMostDim], v[kMostDim];  // of the new cell
  float top[kPack][kWarps], sum[kPack][kWarps], factor[kPack][kCluster];
  float share[kPack][kWarps];
  float warp_values[kWarps][kPack][kMostDim];
  // What all blocks of the cluster put here.
  float block_top[kPack][kCluster], block_sum[kPack][kCluster];
  float parts[kCluster][kWarpValues];
};

/// What a block works on.
struct Work {
  int rank, head_kv, first_head;
  int cell, end;  // the new cell; cells from `end` on do not exist
  AttnSpan span;
};

/// A head on its way from the projection: everything that does not depend on it is read before the wait.
struct HeadWork {
  const float* from = nullptr;
  int d = 0, pairs = 0;
  bool normed = false;
  float eps = 0;
  float weight[kEach], bias[kEach];
  float2 turn[kTurns];

  __device__ __forceinline__ void prepare(const HeadsArgs& a, bool is_q, bool is_v, int head) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const NormArgs& norm = is_q ? a.q_norm : a.k_norm;
    d = is_v ? a.kv.dv : a.kv.dk;
    from = (is_q ? a.q : is_v ? a.v : a.k) + static_cast<std::int64_t>(head) * d;
    normed = !is_v && norm.weight != nullptr;
    eps = norm.eps;
    const int first = norm.heads > 1 ? head * d : 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = lane + j * kWarp;
      weight[j] = normed && i < d ? norm.weight[first + i] : 1.0f;
      bias[j] = normed && i < d && norm.bias != nullptr ? norm.bias[first + i] : 0.0f;
    }
    pairs = is_v ? 0 : a.rotate.n_rot / 2;
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      if (lane + t * kWarp < pairs) turn[t] = turn_of(a.rotate, a.rotate.positions[0], lane + t * kWarp);
    }
  }
  /// By a whole warp; `head` is in the block's memory.
  __device__ __forceinline__ void finish(const RotateArgs& r, float* head) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float x[kEach], squares = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = lane + j * kWarp;
      x[j] = i < d ? from[i] : 0.0f;
      squares += x[j] * x[j];
    }
    const float inverse = normed ? rsqrtf(warp_sum(squares) / static_cast<float>(d) + eps) : 1.0f;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = lane + j * kWarp;
      if (i < d) head[i] = x[j] * inverse * weight[j] + bias[j];
    }
    __syncwarp();
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int p = lane + t * kWarp;
      if (p >= pairs) continue;
      const int first = r.first + (r.adjacent ? 2 * p : p), second = r.first + (r.adjacent ? 2 * p + 1 : p + pairs);
      const float u = head[first], v = head[second];
      head[first] = u * turn[t].x - v * turn[t].y;
      head[second] = u * turn[t].y + v * turn[t].x;
    }
    __syncwarp();
  }
};

/// The new cell's key and value into the cache, by one warp each; `block` has the cell.
__device__ __forceinline__ void store_new(const KvPlanes& kv, const Work& w, bool is_v, const float* head,
                                          std::uint8_t* block) {
  if (block == nullptr) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, d = is_v ? kv.dv : kv.dk;
  auto* to = reinterpret_cast<__half*>(block + (is_v ? kv.v_values + w.head_kv * kv.v_head : w.head_kv * kv.k_head)) +
             w.cell % kTokens * d;
  for (int i = lane; i < d; i += kWarp) to[i] = __float2half_rn(head[i]);
}

__device__ __forceinline__ uint4 as_halves(const float* v) {
  uint4 bits;
  auto* h = reinterpret_cast<__half2*>(&bits);
#pragma unroll
  for (int i = 0; i < 4; ++i) h[i] = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
  return bits;
}

/// Key and value of a cell, as a lane has them.
struct Cell {
  uint4 k{}, v{};

  /// Of a cell before the new one; `block` has it, if it is not null.
  __device__ __forceinline__ void request(const KvPlanes& kv, const Work& w, const std::uint8_t* block, int cell,
                                          int at) {
    k = v = {};
    if (block == nullptr) return;
    const int token = cell % kTokens;
    if (at < kv.dk) k = *reinterpret_cast<const uint4*>(block + w.head_kv * kv.k_head + 2 * (token * kv.dk + at));
    if (at < kv.dv) {
      v = *reinterpret_cast<const uint4*>(block + kv.v_values + w.head_kv * kv.v_head + 2 * (token * kv.dv + at));
    }
  }
  template <int kPack>
  __device__ __forceinline__ void take_new(const KvPlanes& kv, const Memory<kPack>& memory, int at) {
    if (at < kv.dk) k = as_halves(memory.k + at);
    if (at < kv.dv) v = as_halves(memory.v + at);
  }
};

/// The block of a cell before the new one; null for others.
__device__ __forceinline__ const std::uint8_t* old_block(const AttentionArgs& a, const Work& w, int cell) {
  return cell < w.cell && cell < w.end ? block_of(a.in, w.span, cell / kTokens, a.kv.block_bytes) : nullptr;
}

/// What a warp has summed up: lanes hold weighted values of their eight elements, and the maximum and sum of head
/// (lane % kLanes) / (kLanes / kPack).
template <int kLanes, int kPack>
struct State {
  static constexpr int kPerHead = kLanes / kPack;
  float q[kPack][kLaneValues];
  float acc[kPack][kLaneValues] = {};
  float top = -INFINITY, sum = 0.0f;

  __device__ __forceinline__ float score(const AttentionArgs& a, const Work& w, const uint4& key, int cell) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float k[kLaneValues], s[kPack];
    halves_to_floats(key, k);
#pragma unroll
    for (int h = 0; h < kPack; ++h) {
      s[h] = 0.0f;
#pragma unroll
      for (int j = 0; j < kLaneValues; ++j) s[h] += q[h][j] * k[j];
    }
    float v = scatter_sums<kPack, kLanes>(s, lane) * a.scale;
    if (a.softcap > 0) v = a.softcap * tanhf(v / a.softcap);
    if (a.max_alibi_bias > 0) {
      v -= alibi_slope(a, w.first_head + lane % kLanes / kPerHead) * static_cast<float>(w.cell - cell);
    }
    return cell < w.end && visible(a, w.cell, cell) ? v : -INFINITY;
  }

  /// The cell of each half (quarter) of the warp.
  __device__ __forceinline__ void add(const AttentionArgs& a, const Work& w, int cell, const Cell& data) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const float s = score(a, w, data.k, cell);
    float best = fmaxf(top, s);
#pragma unroll
    for (int offset = kLanes; offset < kWarp; offset *= 2) best = fmaxf(best, __shfl_xor_sync(~0u, best, offset));
    const bool any = best != -INFINITY;
    const float factor = any ? __expf(top - best) : 0.0f, p = any ? __expf(s - best) : 0.0f;
    sum = sum * factor + p;
    top = best;
    float v[kLaneValues];
    halves_to_floats(data.v, v);
#pragma unroll
    for (int h = 0; h < kPack; ++h) {
      const int from = lane / kLanes * kLanes + h * kPerHead;
      const float f = __shfl_sync(~0u, factor, from), weight = __shfl_sync(~0u, p, from);
#pragma unroll
      for (int j = 0; j < kLaneValues; ++j) acc[h][j] = acc[h][j] * f + weight * v[j];
    }
  }

  /// Into the block's memory, with the other lanes' cells.
  __device__ __forceinline__ void leave(Memory<kPack>& memory, int dv) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int offset = kLanes; offset < kWarp; offset *= 2) {
      sum += __shfl_xor_sync(~0u, sum, offset);
#pragma unroll
      for (int h = 0; h < kPack; ++h) {
#pragma unroll
        for (int j = 0; j < kLaneValues; ++j) acc[h][j] += __shfl_xor_sync(~0u, acc[h][j], offset);
      }
    }
    if (lane >= kLanes) return;
    if (lane % kPerHead == 0) {
      memory.top[lane / kPerHead][warp] = top;
      memory.sum[lane / kPerHead][warp] = sum;
    }
#pragma unroll
    for (int h = 0; h < kPack; ++h) store_values(memory.warp_values[warp][h], lane * kLaneValues, dv, acc[h]);
  }
};

/// How many blocks of the cluster join the results, kWarpValues each.
__device__ __forceinline__ int joiners(int n) {
  return (n + kWarpValues - 1) / kWarpValues;
}

/// The warps' parts as one, into the memory of the blocks that join them: block_top, block_sum, parts.
template <int kPack>
__device__ __forceinline__ void join_warps(Memory<kPack>& memory, int dv, int rank) {
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (thread < kPack * kWarps) {  // of the first warp
    const int h = thread / kWarps, warp = thread % kWarps;
    const unsigned mask = kPack * kWarps == kWarp ? ~0u : (1u << (kPack * kWarps % kWarp)) - 1;
    const float own = memory.top[h][warp];
    float top = own;
#pragma unroll
    for (int offset = kWarps / 2; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(mask, top, offset));
    const float factor = top != -INFINITY ? expf(own - top) : 0.0f;
    float sum = factor * memory.sum[h][warp];
#pragma unroll
    for (int offset = kWarps / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(mask, sum, offset);
    memory.share[h][warp] = factor;
    if (warp < joiners(kPack * dv)) {
      put_remote(&memory.block_top[h][rank], warp, top);
      put_remote(&memory.block_sum[h][rank], warp, sum);
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = thread; i < kPack * dv; i += kThreads) {
    const int h = i / dv, d = i % dv;
    float v = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) v += memory.share[h][warp] * memory.warp_values[warp][h][d];
    put_remote(&memory.parts[rank][i % kWarpValues], i / kWarpValues, v);
  }
}

/// The blocks' shares of each head, into memory.factor, by a warp per head.
template <int kPack>
__device__ __forceinline__ void weigh_blocks(const AttentionArgs& a, const Work& w, Memory<kPack>& memory) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  if (warp < kPack) {
    float top = lane < kCluster ? memory.block_top[warp][lane] : -INFINITY;
    const float sum = lane < kCluster ? memory.block_sum[warp][lane] : 0.0f, own = top;
    top = warp_max(top);
    const bool any = top != -INFINITY;
    const float sink = any && a.sinks != nullptr ? a.sinks[w.first_head + warp] : -INFINITY;
    top = fmaxf(top, sink);
    const float factor = any ? expf(own - top) : 0.0f;
    float total = warp_sum(factor * sum);
    if (sink != -INFINITY) total += expf(sink - top);
    if (lane < kCluster) memory.factor[warp][lane] = total > 0 ? factor / total : 0.0f;
  }
  __syncthreads();
}

/// Results [first, first + 256) of the cluster's heads, from all blocks; `result` has room for them.
template <int kPack>
__device__ __forceinline__ void join_blocks(const AttentionArgs& a, const Work& w, Memory<kPack>& memory, int first) {
  const int thread = static_cast<int>(threadIdx.x), dv = a.kv.dv, i = first + thread;
  float* result = memory.warp_values[0][0];
  const bool inside = i < kPack * dv;
  if (inside) {
    const int h = i / dv;
    float v = 0.0f;
#pragma unroll
    for (int r = 0; r < kCluster; ++r) v += memory.factor[h][r] * memory.parts[r][thread];
    a.y[w.first_head * dv + i] = v;
    result[thread] = v;
  }
  if (a.rounded.act == ActType::f32) return;
  __syncthreads();
  if (thread >= kWarp) return;
  float v[kLaneValues];
  load_values(result, thread * kLaneValues, kWarpValues, v);
  write_rounded(a.rounded.act, v, w.first_head * dv + first + thread * kLaneValues, a.n_head * dv, 0, a.rounded.to);
}

__device__ __forceinline__ Work work_of(const AttentionArgs& a, int packs, int heads) {
  Work w;
  w.rank = static_cast<int>(blockIdx.x);
  w.head_kv = static_cast<int>(blockIdx.y) / packs;
  w.first_head = static_cast<int>(blockIdx.y) * heads;
  const RowPlace place = place_of(a.in, 0);
  w.span = a.in.spans[max(place.span, 0)];
  w.cell = place.cell;
  w.end = place.span < 0 ? 0 : place.cell + 1;
  return w;
}

template <int kLanes, int kPack>
__global__ void __launch_bounds__(kThreads, 2) single_attention(const __grid_constant__ SingleAttentionArgs a) {
  __shared__ Memory<kPack> memory;
  cluster_arrive();
  allow_next();
  const KvPlanes& kv = a.attend.kv;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int packs = a.attend.n_head / kv.n_head_kv / kPack;
  const Work w = work_of(a.attend, packs, kPack);
  // This warp takes its lanes' cells of all windows of kAllCells cells from the first that is seen on.
  constexpr int kEachTime = kWarp / kLanes, kAllCells = kAllWarps * kEachTime;
  const int at = lane % kLanes * kLaneValues, first = first_visible(a.attend, w.cell);
  const int offset = (w.rank + warp * kCluster) * kEachTime + lane / kLanes;  // neighbours of different blocks
  Cell data, next;
  data.request(kv, w, old_block(a.attend, w, first + offset), first + offset, at);
  next.request(kv, w, old_block(a.attend, w, first + offset + kAllCells), first + offset + kAllCells, at);
  const std::uint8_t* after = old_block(a.attend, w, first + offset + 2 * kAllCells);
  const bool owner = w.end > 0 && (w.cell - first) / kEachTime % kCluster == w.rank;
  const bool makes_q = warp < kPack, makes_new = owner && warp >= kPack && warp < kPack + 2, is_v = warp == kPack + 1;
  HeadWork head;
  if (makes_q || makes_new) {
    head.prepare(a.heads, makes_q, makes_new && is_v, makes_q ? w.first_head + warp : w.head_kv);
  }
  std::uint8_t* block = makes_new && static_cast<int>(blockIdx.y) % packs == 0
                            ? block_of(a.attend.in, w.span, w.cell / kTokens, kv.block_bytes)
                            : nullptr;
  wait_for_previous();
  if (makes_q) head.finish(a.heads.rotate, memory.q[warp]);
  if (makes_new) {
    float* to = is_v ? memory.v : memory.k;
    head.finish(a.heads.rotate, to);
    store_new(kv, w, is_v, to, block);
  }
  __syncthreads();
  State<kLanes, kPack> state;
#pragma unroll
  for (int h = 0; h < kPack; ++h) load_values(memory.q[h], at, kv.dk, state.q[h]);
#pragma unroll 1
  for (int begin = first; begin + offset - lane / kLanes < w.end; begin += kAllCells) {
    const int cell = begin + offset;
    if (cell == w.cell) data.take_new(kv, memory, at);
    Cell third;
    third.request(kv, w, after, cell + 2 * kAllCells, at);
    after = old_block(a.attend, w, cell + 3 * kAllCells);
    state.add(a.attend, w, cell, data);
    data = next;
    next = third;
  }
  state.leave(memory, kv.dv);
  cluster_wait();  // all blocks of the cluster have begun: they have memory
  join_warps(memory, kv.dv, w.rank);
  cluster_arrive();
  cluster_wait();
  if (w.rank * kWarpValues < kPack * kv.dv) {
    weigh_blocks(a.attend, w, memory);
    join_blocks(a.attend, w, memory, w.rank * kWarpValues);
  }
}

template <int kLanes, int kPack>
void launch_of(const SingleAttentionArgs& args, cudaStream_t stream) {
  const auto kernel = single_attention<kLanes, kPack>;
  use_shared_memory(kernel, 0);
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  const dim3 grid(kCluster, static_cast<unsigned>(args.attend.n_head / kPack));
  launch_cluster(kernel, grid, kCluster, kThreads, stream, args);
}

template <int kLanes>
void launch_with(const SingleAttentionArgs& args, cudaStream_t stream) {
  switch (pack_of(args.attend.n_head / args.attend.kv.n_head_kv)) {
    case 1:
      return launch_of<kLanes, 1>(args, stream);
    case 2:
      return launch_of<kLanes, 2>(args, stream);
    default:
      return launch_of<kLanes, kMostPack>(args, stream);
  }
}

}  // namespace

bool single_attention_fits(const KvPlanes& kv, int n_head) {
  const int group = n_head / kv.n_head_kv, pack = pack_of(group);
  if (pack == 3 || group % pack != 0 || pack * kv.dv % kWarpValues != 0) return false;
  if (kv.dk % kLaneValues != 0 || kv.dv % kLaneValues != 0 || kv.dk > kMostDim || kv.dv > kMostDim) return false;
  return card_limits().has_clusters;
}

void launch_single_attention(const SingleAttentionArgs& args, cudaStream_t stream) {
  const int dim = args.attend.kv.dk > args.attend.kv.dv ? args.attend.kv.dk : args.attend.kv.dv;
  dim <= kMostDim / 2 ? launch_with<8>(args, stream) : launch_with<16>(args, stream);
}

}  // namespace ggml::cuda
