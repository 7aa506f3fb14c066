#include "cuda/kernels/kv_access.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rounding.cuh"

// Attention of few rows (decoding) over a long cache.
//
// A block takes one row, up to eight query heads that share a key head, and every n_splits-th KV block of 64 tokens.
// Each of its 8 warps takes 8 of the tokens: 8 to 32 lanes hold one key or value, 8 elements each (heads above 256:
// three times 8), read once for all heads. A warp keeps its own maximum, sum and weighted values (arXiv:2205.14135);
// they are joined at the end, and the block that comes last joins the splits.
namespace ggml::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kWarpTokens = kTokens / kWarps;
constexpr int kMostHeads = 8;
constexpr int kMostSplits = 64;
constexpr int kMostLanes = kWarp * kLaneValues;   // elements that a warp's lanes hold with 8 each
constexpr int kLargeChunks = 3, kLargeHeads = 4;  // of heads with more
static_assert(kLaneValues == kLoadValues);

/// What a block works on.
struct Work {
  int row, head_kv, first_head, n_heads;  // of the query
  int cell, end_cell;
  int first_block, end_block;
  int split, n_splits;  // those that have blocks
};

template <int kHeads>
struct alignas(16) WarpMemory {
  float p[kWarpTokens][kHeads];
  float factor[kHeads];
};

/// How a block's work is shaped: lanes per key or value, query heads, elements per lane in eights, and whether both
/// planes are F16.
template <int kLanes_, int kHeads_, int kChunks_, bool kHalf_>
struct Form {
  static constexpr int kLanes = kLanes_, kHeads = kHeads_, kChunks = kChunks_;
  static constexpr bool kHalf = kHalf_;
  static constexpr int kPerStep = kWarp / kLanes, kSteps = kWarpTokens / kPerStep;  // tokens of a warp at a time
  static constexpr int kUnroll = kChunks == 1 ? kSteps : 1;
  static constexpr int kPack = kChunks == 1 ? kMostHeads : kLargeHeads;  // query heads from block to block
  static_assert(!kHalf || kChunks == 1);
};

/// The element from which on this lane holds eight, in the chunk-th round.
template <class F>
__device__ __forceinline__ int element_of(int chunk) {
  return (chunk * F::kLanes + static_cast<int>(threadIdx.x) % F::kLanes) * kLaneValues;
}

/// The state of one warp: lanes hold queries and weighted values of their elements, and the maximum and sum of head
/// lane % kHeads.
template <class F>
struct WarpState {
  float q[F::kHeads][F::kChunks][kLaneValues];
  float acc[F::kHeads][F::kChunks][kLaneValues];
  float top, sum;
};

/// Keys and values of this warp's tokens of a KV block, eight elements per lane, as they are requested (F16 only).
template <class F>
struct TokensInFlight {
  uint4 k[F::kSteps] = {}, v[F::kSteps] = {};

  /// Those of cells [begin, end) of the sequence.
  __device__ __forceinline__ void request(const AttentionArgs& a, const Work& w, const std::uint8_t* block,
                                          int first_cell, int begin, int end) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
    const int at = element_of<F>(0);
    const std::uint8_t* keys = block + w.head_kv * a.kv.k_head;
    const std::uint8_t* values = block + a.kv.v_values + w.head_kv * a.kv.v_head;
#pragma unroll
    for (int s = 0; s < F::kSteps; ++s) {
      const int token = warp * kWarpTokens + s * F::kPerStep + lane / F::kLanes, cell = first_cell + token;
      if (cell < begin || cell >= end) continue;
      if (at < a.kv.dk) k[s] = *reinterpret_cast<const uint4*>(keys + token * a.kv.k.row_bytes + 2 * at);
      if (at < a.kv.dv) v[s] = *reinterpret_cast<const uint4*>(values + token * a.kv.v.row_bytes + 2 * at);
    }
  }
};

/// Scores of this warp's tokens of a KV block, into memory.p.
template <class F>
__device__ __forceinline__ void score_tokens(const AttentionArgs& a, const Work& w, const std::uint8_t* block,
                                             int first_cell, const TokensInFlight<F>& tokens, const WarpState<F>& m,
                                             WarpMemory<F::kHeads>& memory) {
  constexpr int kHeads = F::kHeads, kLanes = F::kLanes, kPerHead = kLanes / kHeads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int head = lane % kLanes / kPerHead;
  const std::uint8_t* keys = block + w.head_kv * a.kv.k_head;
  const std::uint8_t* scales = block + a.kv.k_scales + w.head_kv * a.kv.k_head_scales;
#pragma unroll F::kUnroll
  for (int s = 0; s < F::kSteps; ++s) {
    const int in_warp = s * F::kPerStep + lane / kLanes, token = warp * kWarpTokens + in_warp,
              cell = first_cell + token;
    float score[kHeads] = {};
#pragma unroll
    for (int c = 0; c < F::kChunks; ++c) {
      float k[kLaneValues] = {};
      if constexpr (F::kHalf) {
        halves_to_floats(tokens.k[s], k);
      } else if (cell < w.end_cell && element_of<F>(c) < a.kv.dk) {
        load_8(a.kv.k, keys, scales, token, element_of<F>(c), k);
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
#pragma unroll
        for (int j = 0; j < kLaneValues; ++j) score[h] += m.q[h][c][j] * k[j];
      }
    }
    float sum = scatter_sums<kHeads, kLanes>(score, lane);
    if (lane % kPerHead != 0) continue;
    sum *= a.scale;
    if (a.softcap > 0) sum = a.softcap * tanhf(sum / a.softcap);
    if (a.max_alibi_bias > 0) sum -= alibi_slope(a, w.first_head + head) * static_cast<float>(abs(w.cell - cell));
    memory.p[in_warp][head] = cell < w.end_cell && visible(a, w.cell, cell) ? sum : -INFINITY;
  }
  __syncwarp();
}

/// Weights in place of the scores, and the factors for what was summed before. Lane l has head l % kHeads and every
/// (32 / kHeads)-th token.
template <class F>
__device__ __forceinline__ void weigh_tokens(WarpState<F>& m, WarpMemory<F::kHeads>& memory) {
  constexpr int kHeads = F::kHeads;
  constexpr int kStride = kWarp / kHeads, kEach = (kWarpTokens + kStride - 1) / kStride;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, head = lane % kHeads;
  float s[kEach], top = m.top, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int token = lane / kHeads + i * kStride;
    s[i] = token < kWarpTokens ? memory.p[token][head] : -INFINITY;
    top = fmaxf(top, s[i]);
  }
#pragma unroll
  for (int offset = kHeads; offset < kWarp; offset *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, offset));
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    s[i] = top == -INFINITY ? 0.0f : expf(s[i] - top);
    sum += s[i];
    const int token = lane / kHeads + i * kStride;
    if (token < kWarpTokens) memory.p[token][head] = s[i];
  }
#pragma unroll
  for (int offset = kHeads; offset < kWarp; offset *= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  const float factor = m.top == -INFINITY ? 0.0f : expf(m.top - top);
  if (lane < kHeads) memory.factor[lane] = factor;
  m.sum = m.sum * factor + sum;
  m.top = top;
  __syncwarp();
}

/// One KV block's tokens of this warp.
template <class F>
__device__ __forceinline__ void add_block(const AttentionArgs& a, const Work& w, const std::uint8_t* block,
                                          int first_cell, const TokensInFlight<F>& tokens, WarpState<F>& m,
                                          WarpMemory<F::kHeads>& memory) {
  score_tokens<F>(a, w, block, first_cell, tokens, m, memory);
  weigh_tokens<F>(m, memory);
#pragma unroll
  for (int h = 0; h < F::kHeads; ++h) {
    const float f = memory.factor[h];
#pragma unroll
    for (int c = 0; c < F::kChunks; ++c) {
#pragma unroll
      for (int j = 0; j < kLaneValues; ++j) m.acc[h][c][j] *= f;
    }
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::uint8_t* values = block + a.kv.v_values + w.head_kv * a.kv.v_head;
  const std::uint8_t* scales = block + a.kv.v_scales + w.head_kv * a.kv.v_head_scales;
#pragma unroll F::kUnroll
  for (int s = 0; s < F::kSteps; ++s) {
    const int in_warp = s * F::kPerStep + lane / F::kLanes, token = warp * kWarpTokens + in_warp;
#pragma unroll
    for (int c = 0; c < F::kChunks; ++c) {
      float v[kLaneValues] = {};
      if constexpr (F::kHalf) {
        halves_to_floats(tokens.v[s], v);
      } else if (first_cell + token < w.end_cell && element_of<F>(c) < a.kv.dv) {
        load_8(a.kv.v, values, scales, token, element_of<F>(c), v);
      }
#pragma unroll
      for (int h = 0; h < F::kHeads; ++h) {
        const float p = memory.p[in_warp][h];
#pragma unroll
        for (int j = 0; j < kLaneValues; ++j) m.acc[h][c][j] += p * v[j];
      }
    }
  }
  __syncwarp();
}

/// Maximum, sum and values of all warps of the block, values in memory [kHeads][dv]; every thread has top and sum of
/// each head through `tops` and `sums`.
template <class F>
__device__ __forceinline__ void join_warps(const AttentionArgs& a, WarpState<F>& m, float* values,
                                           float (*tops)[kWarps], float (*sums)[kWarps]) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int offset = F::kLanes; offset < kWarp; offset *= 2) {
#pragma unroll
    for (int h = 0; h < F::kHeads; ++h) {
#pragma unroll
      for (int c = 0; c < F::kChunks; ++c) {
#pragma unroll
        for (int j = 0; j < kLaneValues; ++j) m.acc[h][c][j] += __shfl_xor_sync(~0u, m.acc[h][c][j], offset);
      }
    }
  }
  if (lane < F::kHeads) {
    tops[lane][warp] = m.top;
    sums[lane][warp] = m.sum;
  }
  if (lane < F::kLanes) {
#pragma unroll
    for (int h = 0; h < F::kHeads; ++h) {
#pragma unroll
      for (int c = 0; c < F::kChunks; ++c) {
        store_values(values + (warp * F::kHeads + h) * a.kv.dv, element_of<F>(c), a.kv.dv, m.acc[h][c]);
      }
    }
  }
  __syncthreads();
}

/// Results of the block's heads, in memory [n_heads * dv], to where they go.
__device__ __forceinline__ void put_results(const AttentionArgs& a, const Work& w, const float* result) {
  const int n = w.n_heads * a.kv.dv;
  const int first = w.first_head * a.kv.dv, all = a.n_head * a.kv.dv;
  float* y = a.y + static_cast<std::int64_t>(w.row) * all + first;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) y[i] = result[i];
  if (a.rounded.act == ActType::f32) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int run = warp * kWarpValues; run < n; run += kWarps * kWarpValues) {
    float v[kLaneValues];
    load_values(result, run + lane * kLaneValues, n, v);
    write_rounded(a.rounded.act, v, first + run + lane * kLaneValues, all, w.row, a.rounded.to);
  }
}

/// The last block of a row and its heads: everything from all splits.
__device__ __forceinline__ void join_splits(const AttentionArgs& a, const Work& w, float* factors, float* result) {
  const int stride = a.kv.dv + 2;
  const auto partial = [&](int head, int split) {
    return a.partial +
           ((static_cast<std::int64_t>(w.row) * a.n_head + w.first_head + head) * a.n_splits + split) * stride;
  };
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int h = warp; h < w.n_heads; h += kWarps) {
    float top = -INFINITY;
    for (int s = lane; s < w.n_splits; s += kWarp) top = fmaxf(top, __ldcg(partial(h, s)));
    top = warp_max(top);
    const bool any = top != -INFINITY;
    if (any && a.sinks != nullptr) top = fmaxf(top, a.sinks[w.first_head + h]);
    float sum = 0.0f;
    for (int s = lane; s < w.n_splits; s += kWarp) {
      const float factor = any ? expf(__ldcg(partial(h, s)) - top) : 0.0f;
      factors[h * kMostSplits + s] = factor;
      sum += factor * __ldcg(partial(h, s) + 1);
    }
    sum = warp_sum(sum);
    if (any && a.sinks != nullptr) sum += expf(a.sinks[w.first_head + h] - top);
    const float inverse = sum > 0 ? 1.0f / sum : 0.0f;
    __syncwarp();
    for (int s = lane; s < w.n_splits; s += kWarp) factors[h * kMostSplits + s] *= inverse;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < w.n_heads * a.kv.dv; i += kThreads) {
    const int h = i / a.kv.dv, d = i % a.kv.dv;
    float v = 0.0f;
#pragma unroll 8
    for (int s = 0; s < w.n_splits; ++s) v += factors[h * kMostSplits + s] * __ldcg(partial(h, s) + 2 + d);
    result[i] = v;
  }
  __syncthreads();
}

/// The joined warps as a result (one split) or as what the last block joins. `factors` [kHeads * kWarps].
template <int kHeads>
__device__ __forceinline__ void leave_split(const AttentionArgs& a, const Work& w, const float* values,
                                            const float (*tops)[kWarps], const float (*sums)[kWarps], float* factors,
                                            float* result) {
  const auto partial = [&](int head) {
    return a.partial +
           ((static_cast<std::int64_t>(w.row) * a.n_head + w.first_head + head) * a.n_splits + w.split) * (a.kv.dv + 2);
  };
  if (static_cast<int>(threadIdx.x) < w.n_heads) {
    const int h = static_cast<int>(threadIdx.x);
    float top = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) top = fmaxf(top, tops[h][warp]);
    const bool any = top != -INFINITY;
    const bool sunk = w.n_splits == 1 && any && a.sinks != nullptr;
    if (sunk) top = fmaxf(top, a.sinks[w.first_head + h]);
    float sum = sunk ? expf(a.sinks[w.first_head + h] - top) : 0.0f, factor[kWarps];
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      factor[warp] = any ? expf(tops[h][warp] - top) : 0.0f;
      sum += factor[warp] * sums[h][warp];
    }
    const float share = w.n_splits > 1 ? 1.0f : sum > 0 ? 1.0f / sum : 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) factors[h * kWarps + warp] = factor[warp] * share;
    if (w.n_splits > 1) {
      partial(h)[0] = top;
      partial(h)[1] = sum;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < w.n_heads * a.kv.dv; i += kThreads) {
    const int h = i / a.kv.dv, d = i % a.kv.dv;
    float v = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      v += factors[h * kWarps + warp] * values[(warp * kHeads + h) * a.kv.dv + d];
    }
    (w.n_splits > 1 ? partial(h) + 2 : result + h * a.kv.dv)[d] = v;
  }
  __syncthreads();
}

/// Which part of the work is the block's, `most` heads at a time; false: none.
__device__ __forceinline__ bool find_work(const AttentionArgs& a, int most, Work& w, AttnSpan& span) {
  w.row = static_cast<int>(blockIdx.x);
  if (w.row >= live(a.tokens)) return false;
  const RowPlace place = place_of(a.in, w.row);
  if (place.span < 0) return false;
  span = a.in.spans[place.span];
  const int group = a.n_head / a.kv.n_head_kv, packs = (group + most - 1) / most;
  const int skipped = static_cast<int>(blockIdx.y) % packs * most;
  w.head_kv = static_cast<int>(blockIdx.y) / packs;
  w.first_head = w.head_kv * group + skipped;
  w.n_heads = min(group - skipped, most);
  w.cell = place.cell;
  w.end_cell = a.causal ? place.cell + 1 : span.first_cell + span.n_rows;
  w.first_block = first_visible(a, place.cell) / kTokens;
  w.end_block = (w.end_cell + kTokens - 1) / kTokens;
  w.split = static_cast<int>(blockIdx.z);
  w.n_splits = max(1, min(a.n_splits, w.end_block - w.first_block));
  return w.split < w.n_splits;
}

template <class F>
__global__ void __launch_bounds__(kThreads) attention_rows(const __grid_constant__ AttentionArgs a) {
  constexpr int kHeads = F::kHeads;
  extern __shared__ float values[];  // [kWarps][kHeads][dv]
  __shared__ WarpMemory<kHeads> memory[kWarps];
  __shared__ float tops[kHeads][kWarps], sums[kHeads][kWarps];
  __shared__ float factors[kHeads * kMostSplits];
  allow_next();
  Work w;
  AttnSpan span;
  if (!find_work(a, F::kPack, w, span)) return wait_for_previous();
  // Cells before this step's do not depend on the kernel before.
  int b = w.first_block + w.split;
  const std::uint8_t* block = b < w.end_block ? block_of(a.in, span, b, a.kv.block_bytes) : nullptr;
  TokensInFlight<F> tokens;
  const int n_old = min(span.first_cell, w.end_cell);
  if (F::kHalf && block != nullptr) tokens.request(a, w, block, b * kTokens, 0, n_old);
  wait_for_previous();
  if (F::kHalf && block != nullptr) tokens.request(a, w, block, b * kTokens, n_old, w.end_cell);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  WarpState<F> m;
  m.top = -INFINITY;
  m.sum = 0.0f;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const float* q = a.q + (static_cast<std::int64_t>(w.row) * a.n_head + w.first_head + h) * a.kv.dk;
#pragma unroll
    for (int c = 0; c < F::kChunks; ++c) {
      load_values(q, element_of<F>(c), h < w.n_heads ? a.kv.dk : 0, m.q[h][c]);
#pragma unroll
      for (int j = 0; j < kLaneValues; ++j) m.acc[h][c][j] = 0.0f;
    }
  }
  while (b < w.end_block) {
    if (block != nullptr) add_block<F>(a, w, block, b * kTokens, tokens, m, memory[warp]);
    b += w.n_splits;
    if (b >= w.end_block) break;
    block = block_of(a.in, span, b, a.kv.block_bytes);
    tokens = {};
    if (F::kHalf && block != nullptr) tokens.request(a, w, block, b * kTokens, 0, w.end_cell);
  }
  join_warps<F>(a, m, values, tops, sums);
  float* result = values + kWarps * kHeads * a.kv.dv;
  leave_split<kHeads>(a, w, values, tops, sums, factors, result);
  if (w.n_splits > 1) {
    int* arrived = a.arrived + w.row * static_cast<int>(gridDim.y) + static_cast<int>(blockIdx.y);
    if (!last_to_arrive(arrived, w.n_splits)) return;
    join_splits(a, w, factors, result);
  }
  put_results(a, w, result);
}

bool is_large(const KvPlanes& kv) {
  return kv.dk > kMostLanes || kv.dv > kMostLanes;
}

int heads_of_block(const KvPlanes& kv) {
  return is_large(kv) ? kLargeHeads : kMostHeads;
}

int packs_of(const KvPlanes& kv, int group) {
  return (group + heads_of_block(kv) - 1) / heads_of_block(kv);
}

template <class F>
void launch_of(const AttentionArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>((kWarps + 1) * F::kHeads * args.kv.dv) * sizeof(float);
  constexpr std::size_t kAlways = 32 * 1024;
  if (bytes > kAlways) {
    CUDA_CHECK(
        cudaFuncSetAttribute(attention_rows<F>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  }
  const int packs = packs_of(args.kv, args.n_head / args.kv.n_head_kv);
  const dim3 grid(static_cast<unsigned>(args.tokens.capacity), static_cast<unsigned>(args.kv.n_head_kv * packs),
                  static_cast<unsigned>(args.n_splits));
  launch(attention_rows<F>, grid, kThreads, bytes, stream, args);
}

template <int kLanes, bool kHalf>
void launch_with(const AttentionArgs& args, cudaStream_t stream) {
  const int group = args.n_head / args.kv.n_head_kv;
  if (group == 1) return launch_of<Form<kLanes, 1, 1, kHalf>>(args, stream);
  if (group <= 4) return launch_of<Form<kLanes, 4, 1, kHalf>>(args, stream);
  launch_of<Form<kLanes, kMostHeads, 1, kHalf>>(args, stream);
}

template <bool kHalf>
void launch_for(const AttentionArgs& args, cudaStream_t stream) {
  const int dim = args.kv.dk > args.kv.dv ? args.kv.dk : args.kv.dv;
  if (dim <= 64) return launch_with<8, kHalf>(args, stream);
  if (dim <= 128) return launch_with<16, kHalf>(args, stream);
  launch_with<32, kHalf>(args, stream);
}

}  // namespace

bool few_rows_attention_fits(const KvPlanes& kv) {
  constexpr int kMostDims = kLargeChunks * kMostLanes;
  return kv.dk % kLaneValues == 0 && kv.dv % kLaneValues == 0 && kv.dv > 0 && kv.dk <= kMostDims && kv.dv <= kMostDims;
}

bool few_rows_attention_rounds(const KvPlanes& kv, int group) {
  // A block's results are whole runs of 256 values.
  const int most = heads_of_block(kv);
  return group * kv.dv % kWarpValues == 0 && (group <= most || most * kv.dv % kWarpValues == 0);
}

int few_rows_attention_splits(const KvPlanes& kv, int rows, int group, int multiprocessors) {
  const int splits = multiprocessors / (rows * kv.n_head_kv * packs_of(kv, group));
  return splits < 1 ? 1 : splits < kMostSplits ? splits : kMostSplits;
}

int few_rows_attention_counters(const KvPlanes& kv, int rows, int group) {
  return rows * kv.n_head_kv * packs_of(kv, group);
}

void launch_few_rows_attention(const AttentionArgs& args, cudaStream_t stream) {
  if (is_large(args.kv)) return launch_of<Form<kWarp, kLargeHeads, kLargeChunks, false>>(args, stream);
  const bool half = args.kv.k.type == DType::f16 && args.kv.v.type == DType::f16;
  half ? launch_for<true>(args, stream) : launch_for<false>(args, stream);
}

}  // namespace ggml::cuda
