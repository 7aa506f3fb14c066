#include "cuda/kernels/attention.h"

#include "cuda/kernels/kv_access.cuh"
#include "cuda/kernels/launch.cuh"

// Attention for any shape: a block of 128 threads takes one row, up to eight query heads that share a key head, and
// every n_splits-th KV block; scores of a KV block, their running maximum and sum (arXiv:2205.14135), weighted values.
// A second kernel joins the splits. Keys are read a token per thread, values a column per thread: the slow way, for
// heads whose sizes the other kernels do not take.
namespace ggml::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMostHeads = 8;  // of a block

/// A warp per (token, head): keys, then values.
__global__ void __launch_bounds__(kThreads) kv_append(const __grid_constant__ AppendArgs a) {
  begin_kernel();
  const int item = static_cast<int>(blockIdx.x) * (kThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;
  const int row = item / a.kv.n_head_kv, head = item % a.kv.n_head_kv;
  if (row >= live(a.tokens)) return;
  const RowPlace place = place_of(a.in, row);
  if (place.span < 0) return;
  std::uint8_t* block = block_of(a.in, a.in.spans[place.span], place.cell / kTokens, a.kv.block_bytes);
  if (block == nullptr) return;
  const int token = place.cell % kTokens;
  const float* k = a.k + (static_cast<std::int64_t>(row) * a.kv.n_head_kv + head) * a.kv.dk;
  store_row(a.kv.k, k, a.kv.dk, block + head * a.kv.k_head, block + a.kv.k_scales + head * a.kv.k_head_scales, token);
  if (a.kv.dv == 0) return;
  const float* v = a.v + (static_cast<std::int64_t>(row) * a.kv.n_head_kv + head) * a.kv.dv;
  store_row(a.kv.v, v, a.kv.dv, block + a.kv.v_values + head * a.kv.v_head,
            block + a.kv.v_scales + head * a.kv.v_head_scales, token);
}

/// The heads of a block.
struct Heads {
  int kv, first, n;  // key head; query heads
};
__host__ __device__ constexpr int packs_of(int group) {
  return (group + kMostHeads - 1) / kMostHeads;
}

/// Shared memory of the attention kernel, in floats: queries, scores, values of the heads, maxima and sums.
struct Shared {
  float* q;       // [heads][dk]
  float* scores;  // [heads][64]
  float* acc;     // [heads][dv]
  float* top;     // [heads]
  float* sum;     // [heads]
  float* factor;  // [heads]
};
__host__ __device__ constexpr int shared_floats(int heads, int dk, int dv) {
  return heads * (dk + kTokens + dv + 3);
}

/// Scores of the block's 64 tokens for each head. Two threads share a token: even and odd heads.
__device__ void score_block(const AttentionArgs& a, const Shared& m, const std::uint8_t* block, const Heads& heads,
                            int query, int first_cell, int end_cell) {
  const int token = static_cast<int>(threadIdx.x) % kTokens, half = static_cast<int>(threadIdx.x) / kTokens;
  const int cell = first_cell + token;
  const std::uint8_t* values = block + heads.kv * a.kv.k_head;
  const std::uint8_t* scales = block + a.kv.k_scales + heads.kv * a.kv.k_head_scales;
  const bool seen = cell < end_cell && visible(a, query, cell);
  for (int g = half; g < heads.n; g += 2) {
    float s = -INFINITY;
    if (seen) {
      s = 0;
      const float* q = m.q + g * a.kv.dk;
      for (int i = 0; i < a.kv.dk; ++i) s += q[i] * load_one(a.kv.k, values, scales, token, i);
      s *= a.scale;
      if (a.softcap > 0) s = a.softcap * tanhf(s / a.softcap);
      if (a.max_alibi_bias > 0) s -= alibi_slope(a, heads.first + g) * static_cast<float>(abs(query - cell));
    }
    m.scores[g * kTokens + token] = s;
  }
}

/// A warp per head: new maximum, weights in place of the scores, the factor for what was summed before.
__device__ void weigh_block(const Shared& m, int n_heads) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int g = warp; g < n_heads; g += kThreads / kWarp) {
    float* s = m.scores + g * kTokens;
    const float top = fmaxf(m.top[g], warp_max(fmaxf(s[lane], s[lane + kWarp])));
    const float p0 = top == -INFINITY ? 0.0f : expf(s[lane] - top),
                p1 = top == -INFINITY ? 0.0f : expf(s[lane + kWarp] - top);
    const float sum = warp_sum(p0 + p1);
    __syncwarp();
    s[lane] = p0;
    s[lane + kWarp] = p1;
    if (lane == 0) {
      const float factor = m.top[g] == -INFINITY ? 0.0f : expf(m.top[g] - top);
      m.factor[g] = factor;
      m.sum[g] = m.sum[g] * factor + sum;
      m.top[g] = top;
    }
    __syncwarp();
  }
}

__device__ void add_values(const AttentionArgs& a, const Shared& m, const std::uint8_t* block, const Heads& heads,
                           int n) {
  const std::uint8_t* values = block + a.kv.v_values + heads.kv * a.kv.v_head;
  const std::uint8_t* scales = block + a.kv.v_scales + heads.kv * a.kv.v_head_scales;
  for (int i = static_cast<int>(threadIdx.x); i < a.kv.dv; i += kThreads) {
    for (int g = 0; g < heads.n; ++g) m.acc[g * a.kv.dv + i] *= m.factor[g];
    for (int token = 0; token < n; ++token) {
      const float v = load_one(a.kv.v, values, scales, token, i);
      for (int g = 0; g < heads.n; ++g) m.acc[g * a.kv.dv + i] += m.scores[g * kTokens + token] * v;
    }
  }
}

/// Puts out what a split found, or the result where there is one split.
__device__ void leave(const AttentionArgs& a, const Shared& m, int row, const Heads& heads, int split) {
  for (int i = static_cast<int>(threadIdx.x); i < heads.n * a.kv.dv; i += kThreads) {
    const int g = i / a.kv.dv, d = i % a.kv.dv, head = heads.first + g;
    if (a.n_splits > 1) {
      float* p = a.partial + ((static_cast<std::int64_t>(row) * a.n_head + head) * a.n_splits + split) * (a.kv.dv + 2);
      p[2 + d] = m.acc[i];
      if (d == 0) {
        p[0] = m.top[g];
        p[1] = m.sum[g];
      }
      continue;
    }
    float sum = m.sum[g], factor = 1.0f;
    if (a.sinks != nullptr && m.top[g] != -INFINITY) {
      const float top = fmaxf(m.top[g], a.sinks[head]);
      factor = expf(m.top[g] - top);
      sum = sum * factor + expf(a.sinks[head] - top);
    }
    a.y[(static_cast<std::int64_t>(row) * a.n_head + head) * a.kv.dv + d] = sum > 0 ? m.acc[i] * factor / sum : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads) attention(const __grid_constant__ AttentionArgs a) {
  extern __shared__ float memory[];
  begin_kernel();
  const int row = static_cast<int>(blockIdx.x), split = static_cast<int>(blockIdx.z);
  if (row >= live(a.tokens)) return;
  const RowPlace place = place_of(a.in, row);
  if (place.span < 0) return;
  const int group = a.n_head / a.kv.n_head_kv, packs = packs_of(group);
  const int head_kv = static_cast<int>(blockIdx.y) / packs, skipped = static_cast<int>(blockIdx.y) % packs * kMostHeads;
  const Heads heads{head_kv, head_kv * group + skipped, min(group - skipped, kMostHeads)};
  Shared m{};
  m.q = memory;
  m.scores = m.q + heads.n * a.kv.dk;
  m.acc = m.scores + heads.n * kTokens;
  m.top = m.acc + heads.n * a.kv.dv;
  m.sum = m.top + heads.n;
  m.factor = m.sum + heads.n;
  const float* q = a.q + (static_cast<std::int64_t>(row) * a.n_head + heads.first) * a.kv.dk;
  for (int i = static_cast<int>(threadIdx.x); i < heads.n * a.kv.dk; i += kThreads) m.q[i] = q[i];
  for (int i = static_cast<int>(threadIdx.x); i < heads.n * a.kv.dv; i += kThreads) m.acc[i] = 0.0f;
  for (int g = static_cast<int>(threadIdx.x); g < heads.n; g += kThreads) {
    m.top[g] = -INFINITY;
    m.sum[g] = 0.0f;
  }
  __syncthreads();
  const AttnSpan& span = a.in.spans[place.span];
  const int end_cell = a.causal ? place.cell + 1 : span.first_cell + span.n_rows;
  const int end_block = (end_cell + kTokens - 1) / kTokens;
  for (int b = first_visible(a, place.cell) / kTokens + split; b < end_block; b += a.n_splits) {
    const std::uint8_t* block = block_of(a.in, span, b, a.kv.block_bytes);
    if (block == nullptr) continue;
    score_block(a, m, block, heads, place.cell, b * kTokens, end_cell);
    __syncthreads();
    weigh_block(m, heads.n);
    __syncthreads();
    add_values(a, m, block, heads, min(kTokens, end_cell - b * kTokens));
    __syncthreads();
  }
  leave(a, m, row, heads, split);
}

/// A block per (row, head): the splits' results as one.
__global__ void __launch_bounds__(kThreads) join_splits(const __grid_constant__ AttentionArgs a) {
  begin_kernel();
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  if (row >= live(a.tokens) || place_of(a.in, row).span < 0) return;
  const int stride = a.kv.dv + 2;
  const float* p = a.partial + (static_cast<std::int64_t>(row) * a.n_head + head) * a.n_splits * stride;
  float top = -INFINITY;
  for (int s = 0; s < a.n_splits; ++s) top = fmaxf(top, p[s * stride]);
  const bool any = top != -INFINITY;
  if (any && a.sinks != nullptr) top = fmaxf(top, a.sinks[head]);
  float sum = any && a.sinks != nullptr ? expf(a.sinks[head] - top) : 0.0f;
  for (int s = 0; s < a.n_splits; ++s) sum += any ? expf(p[s * stride] - top) * p[s * stride + 1] : 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < a.kv.dv; i += kThreads) {
    float v = 0;
    for (int s = 0; s < a.n_splits; ++s) v += any ? expf(p[s * stride] - top) * p[s * stride + 2 + i] : 0.0f;
    a.y[(static_cast<std::int64_t>(row) * a.n_head + head) * a.kv.dv + i] = any ? v / sum : 0.0f;
  }
}

}  // namespace

int attention_splits(int rows, int n_head_kv, int multiprocessors) {
  const int blocks = rows * n_head_kv;
  int splits = 1;
  while (splits < 64 && blocks * splits < 2 * multiprocessors) splits *= 2;
  return splits;
}

void launch_kv_append(const AppendArgs& args, cudaStream_t stream) {
  const int items = args.tokens.capacity * args.kv.n_head_kv;
  launch(kv_append, static_cast<unsigned>((items + kThreads / kWarp - 1) / (kThreads / kWarp)), kThreads, 0, stream,
         args);
}

void launch_attention(const AttentionArgs& args, cudaStream_t stream) {
  const int group = args.n_head / args.kv.n_head_kv, heads = group < kMostHeads ? group : kMostHeads;
  const auto bytes = static_cast<std::size_t>(shared_floats(heads, args.kv.dk, args.kv.dv)) * sizeof(float);
  if (bytes > 48 * 1024) {
    CUDA_CHECK(cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  }
  const dim3 grid(static_cast<unsigned>(args.tokens.capacity),
                  static_cast<unsigned>(args.kv.n_head_kv * packs_of(group)), static_cast<unsigned>(args.n_splits));
  launch(attention, grid, kThreads, bytes, stream, args);
  if (args.n_splits > 1) launch_join_splits(args, stream);
}

void launch_join_splits(const AttentionArgs& args, cudaStream_t stream) {
  launch(join_splits, dim3(static_cast<unsigned>(args.tokens.capacity), static_cast<unsigned>(args.n_head)), kThreads,
         0, stream, args);
}

}  // namespace ggml::cuda
