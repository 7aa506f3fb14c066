#pragma once

#include "cuda/kernels/kv_tiles.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/prompt_attention.h"

// Attention of many rows on the tensor cores (FlashAttention-2, arXiv:2307.08691).
//
// A block of four warps takes 64 rows, where a row is a query head of a token: the heads that share a key head come one
// after another, then the next token's, so that they share its tiles of keys and values. Each warp has 16 rows; scores,
// weights and results stay in registers. Queries and weights are multiplied as the sum of two halves each (22 bits),
// every tile's weighted values are summed on their own and added in f32: results match f32 arithmetic. Keys and values
// kept as halves are copied while the tile before is multiplied; those of other types are converted in place.
namespace ggml::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_near(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// What a block works on.
struct RowTile {
  AttnSpan span;
  int first = 0;  // row of the span's n_rows * group
  int rows = 0;   // of the span
};

/// The tile-th run of kPromptRows rows, counted span by span; no rows: there is none.
__device__ __forceinline__ RowTile find_tile(const KvInputs& in, int group, int tile) {
  const int n = *in.n_spans;
  RowTile found;
  for (int s = 0; s < n; ++s) {
    const int rows = in.spans[s].n_rows * group, tiles = (rows + kPromptRows - 1) / kPromptRows;
    if (tile < tiles) {
      found.span = in.spans[s];
      found.first = tile * kPromptRows;
      found.rows = rows;
      return found;
    }
    tile -= tiles;
  }
  return found;
}

/// Shared memory, in bytes.
template <int kD, bool kConvert>
struct PromptShape {
  static constexpr int kPlanes = kConvert ? 2 : 1;
  static constexpr int kStages = kConvert ? 1 : 2;
  static constexpr bool kQueriesInRegisters = kD <= 128;
  static constexpr int kTile = KvTile<kD>::kBytes * kPlanes;
  static constexpr int kStage = 2 * kTile;  // keys, then values
  static constexpr int kQueries = kQueriesInRegisters ? 0 : kPromptRows * kD * 2 * 2;
  static constexpr int kShared = kStages * kStage + kQueries;
};

/// One lane's two rows: row i is g + 8 i of the warp's 16, where g = lane / 4.
struct LaneRows {
  bool live[2];
  int cell[2], head[2];
  int from[2], to[2];  // the cells that the row may see, both included
  std::int64_t at[2];  // token * n_head + head
};

template <int kD, bool kConvert>
class PromptAttention {
  using Shape = PromptShape<kD, kConvert>;
  static constexpr int kSteps = kD / 16;

 public:
  __device__ PromptAttention(const AttentionArgs& args, std::uint8_t* shared) : a(args), memory(shared) {}

  __device__ void run(int tile) {
    const int group = a.n_head / a.kv.n_head_kv;
    const RowTile rows = find_tile(a.in, group, tile);
    if (rows.rows == 0) return;
    first_cell = rows.span.first_cell + rows.first / group;
    last_cell = rows.span.first_cell + (min(rows.first + kPromptRows, rows.rows) - 1) / group;
    end_cell = a.causal ? last_cell + 1 : rows.span.first_cell + rows.span.n_rows;
    place_rows(rows, group);
    load_queries();
    clear_key_padding();
    if constexpr (kConvert) {
      walk_converting(rows.span);
    } else {
      walk_copying(rows.span);
    }
    leave();
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  __device__ int head_kv() const { return static_cast<int>(blockIdx.y); }

  __device__ void place_rows(const RowTile& tile, int group) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = tile.first + warp() * 16 + lane() / 4 + 8 * i;
      own.live[i] = row < tile.rows;
      const int token = own.live[i] ? row / group : 0, head = own.live[i] ? row % group : 0;
      own.cell[i] = tile.span.first_cell + token;
      own.from[i] = first_visible(a, own.cell[i]);
      own.to[i] = a.causal ? own.cell[i] : end_cell - 1;
      if (a.window_kind == WindowKind::symmetric) own.to[i] = min(own.to[i], own.cell[i] + a.window / 2);
      own.head[i] = head_kv() * group + head;
      own.at[i] = static_cast<std::int64_t>(tile.span.first_row + token) * a.n_head + own.head[i];
    }
    busy = tile.first + warp() * 16 < tile.rows;
  }

  __device__ float2 query(int i, int column) const {
    if (!own.live[i] || column >= a.kv.dk) return {0.0f, 0.0f};
    return *reinterpret_cast<const float2*>(a.q + own.at[i] * a.kv.dk + column);
  }

  /// Queries times a power of two as two planes of fragments.
  __device__ void load_queries() {
    PowerOfTwo scale[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float bound = 0;
#pragma unroll 4
      for (int c = 2 * (lane() % 4); c < kD; c += 8) {
        const float2 v = query(i, c);
        bound = fmaxf(bound, fmaxf(fabsf(v.x), fabsf(v.y)));
      }
      bound = fmaxf(bound, __shfl_xor_sync(~0u, bound, 1));
      bound = fmaxf(bound, __shfl_xor_sync(~0u, bound, 2));
      scale[i] = scale_to_bits<9>(bound);
      score_factor[i] = scale[i].inverse * a.scale;
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      unsigned high[4], low[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 v = query(j % 2, 16 * step + 2 * (lane() % 4) + 8 * (j / 2));
        const float factor = scale[j % 2].factor;
        split_pair(v.x * factor, v.y * factor, high[j], low[j]);
      }
      if constexpr (Shape::kQueriesInRegisters) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          queries[step][0][j] = high[j];
          queries[step][1][j] = low[j];
        }
      } else {
        uint4* at = query_memory(step);
        at[0] = {high[0], high[1], high[2], high[3]};
        at[kPromptThreads] = {low[0], low[1], low[2], low[3]};
      }
    }
  }
  /// Where this thread keeps its fragments of a step: high, then kPromptThreads further low.
  __device__ uint4* query_memory(int step) const {
    return reinterpret_cast<uint4*>(memory + Shape::kStages * Shape::kStage) + 2 * step * kPromptThreads + threadIdx.x;
  }
  __device__ void query_fragments(int step, unsigned (&high)[4], unsigned (&low)[4]) const {
    if constexpr (Shape::kQueriesInRegisters) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        high[j] = queries[step][0][j];
        low[j] = queries[step][1][j];
      }
    } else {
      const uint4 h = query_memory(step)[0], l = query_memory(step)[kPromptThreads];
      high[0] = h.x, high[1] = h.y, high[2] = h.z, high[3] = h.w;
      low[0] = l.x, low[1] = l.y, low[2] = l.z, low[3] = l.w;
    }
  }

  /// Columns beyond the keys up to the next multiple of 16 are multiplied: they must be numbers.
  __device__ void clear_key_padding() {
    if (a.kv.dk % 16 == 0) return;
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kStages * Shape::kPlanes * kTokens; i += kPromptThreads) {
      const int stage = i / (Shape::kPlanes * kTokens), row = i % (Shape::kPlanes * kTokens);
      *reinterpret_cast<uint4*>(memory + stage * Shape::kStage + row * KvTile<kD>::kStride + 2 * a.kv.dk) = uint4{};
    }
  }

  /// The first block from `index` on that this part of the split takes and that is there; `index` then is its number.
  __device__ const std::uint8_t* next_block(const AttnSpan& span, int& index) const {
    for (; index * kTokens < end_cell; index += a.n_splits) {
      if (const std::uint8_t* block = block_of(a.in, span, index, a.kv.block_bytes)) return block;
    }
    return nullptr;
  }
  __device__ int first_block() const {
    return first_visible(a, first_cell) / kTokens + static_cast<int>(blockIdx.z);
  }

  __device__ void start_copies(const std::uint8_t* block, int index, int stage) {
    const int n = min(kTokens, end_cell - index * kTokens);
    const unsigned to = shared_address(memory) + stage * Shape::kStage;
    copy_tile<kD>(to, key_tile(a.kv, block, head_kv()), n);
    copy_tile<kD>(to + Shape::kTile, value_tile(a.kv, block, head_kv()), n);
  }

  __device__ void walk_copying(const AttnSpan& span) {
    int index = first_block(), stage = 0;
    const std::uint8_t* block = next_block(span, index);
    if (block != nullptr) start_copies(block, index, stage);
    end_copies();
    while (block != nullptr) {
      int next = index + a.n_splits;
      block = next_block(span, next);
      if (block != nullptr) start_copies(block, next, 1 - stage);
      end_copies();
      wait_copies<1>();
      __syncthreads();
      if (busy) multiply(memory + stage * Shape::kStage, index, 1.0f, 1.0f);
      __syncthreads();
      index = next;
      stage = 1 - stage;
    }
    wait_copies<0>();
  }

  /// The largest of all threads' values.
  __device__ float block_bound(float x) {
    __shared__ float parts[kPromptThreads / kWarp];
    x = warp_max(x);
    if (lane() == 0) parts[warp()] = x;
    __syncthreads();
    x = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
    __syncthreads();
    return x;
  }

  __device__ void walk_converting(const AttnSpan& span) {
    int index = first_block();
    while (const std::uint8_t* block = next_block(span, index)) {
      const int n = min(kTokens, end_cell - index * kTokens);
      const HeadTile keys = key_tile(a.kv, block, head_kv()), values = value_tile(a.kv, block, head_kv());
      const PowerOfTwo k = scale_to_bits<15>(block_bound(share_bound(keys, n)));
      const PowerOfTwo v = scale_to_bits<15>(block_bound(share_bound(values, n)));
      convert_tile<kD>(memory, keys, n, k.factor);
      convert_tile<kD>(memory + Shape::kTile, values, n, v.factor);
      __syncthreads();
      if (busy) multiply(memory, index, k.inverse, v.inverse);
      __syncthreads();
      index += a.n_splits;
    }
  }

  /// One tile: scores, weights, weighted values. The factors undo what the tile was multiplied by.
  __device__ void multiply(const std::uint8_t* tile, int index, float key_factor, float value_factor) {
    float s[8][4] = {};
    const unsigned keys = shared_address(tile);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (16 * step < a.kv.dk) score_step(keys, step, s);
    }
    const float factors[2] = {score_factor[0] * key_factor, score_factor[1] * key_factor};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] *= factors[e / 2];
    }
    bend_scores(s, index);
    float alpha[2];
    weigh(s, alpha);
    add_values(keys + Shape::kTile, s, alpha, value_factor);
  }

  __device__ void score_step(unsigned keys, int step, float (&s)[8][4]) const {
    unsigned high[4], low[4];
    query_fragments(step, high, low);
    const int matrix = lane() / 8;
    const unsigned from =
        keys + static_cast<unsigned>((matrix / 2 * 8 + lane() % 8) * KvTile<kD>::kStride + 32 * step + matrix % 2 * 16);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const unsigned at = from + pair * 16 * KvTile<kD>::kStride;
      unsigned k[4];
      load_matrices(k, at);
      mma_half(s[2 * pair], high, k[0], k[1]);
      mma_half(s[2 * pair + 1], high, k[2], k[3]);
      mma_half(s[2 * pair], low, k[0], k[1]);
      mma_half(s[2 * pair + 1], low, k[2], k[3]);
      if constexpr (kConvert) {
        load_matrices(k, at + KvTile<kD>::kBytes);
        mma_half(s[2 * pair], high, k[0], k[1]);
        mma_half(s[2 * pair + 1], high, k[2], k[3]);
      }
    }
  }

  /// Soft cap, bias and what a row may not see.
  __device__ void bend_scores(float (&s)[8][4], int index) const {
    const int first = index * kTokens, last = first + kTokens - 1;
    if (a.softcap > 0) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s[j][e] = a.softcap * tanhf(s[j][e] / a.softcap);
      }
    }
    if (a.max_alibi_bias > 0) {
      const float slope[2] = {alibi_slope(a, own.head[0]), alibi_slope(a, own.head[1])};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int cell = first + 8 * j + 2 * (lane() % 4) + e % 2;
          s[j][e] -= slope[e / 2] * static_cast<float>(abs(own.cell[e / 2] - cell));
        }
      }
    }
    const bool all_seen = (a.causal ? last <= first_cell : last < end_cell) &&
                          (a.window_kind == WindowKind::none || first >= first_visible(a, last_cell)) &&
                          (a.window_kind != WindowKind::symmetric || last - first_cell <= a.window / 2);
    if (all_seen) return;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int cell = first + 8 * j + 2 * (lane() % 4) + e % 2;
        if (cell < own.from[e / 2] || cell > own.to[e / 2]) s[j][e] = -INFINITY;
      }
    }
  }

  /// Scores become weights relative to the new maximum; alpha is what earlier sums must be multiplied by.
  __device__ void weigh(float (&s)[8][4], float (&alpha)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float most = top[i];
#pragma unroll
      for (int j = 0; j < 8; ++j) most = fmaxf(most, fmaxf(s[j][2 * i], s[j][2 * i + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const float base = most == -INFINITY ? 0.0f : most;
      alpha[i] = exp2_near((top[i] - base) * kLog2E);
      top[i] = most;
      float total = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int e = 2 * i; e < 2 * i + 2; ++e) {
          s[j][e] = exp2_near((s[j][e] - base) * kLog2E);
          total += s[j][e];
        }
      }
      sum[i] = sum[i] * alpha[i] + total;
    }
  }

  __device__ void add_values(unsigned values, const float (&s)[8][4], const float (&alpha)[2], float value_factor) {
    unsigned high[4][4], low[4][4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&w)[4] = s[2 * t + j / 2];
        split_pair(w[j % 2 * 2], w[j % 2 * 2 + 1], high[t][j], low[t][j]);
      }
    }
    const int matrix = lane() / 8;
    const unsigned from =
        values + static_cast<unsigned>((matrix % 2 * 8 + lane() % 8) * KvTile<kD>::kStride + matrix / 2 * 16);
#pragma unroll
    for (int pair = 0; pair < kSteps; ++pair) {
      if (16 * pair >= a.kv.dv) continue;
      float part[2][4] = {};
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const unsigned at = from + t * 16 * KvTile<kD>::kStride + 32 * pair;
        unsigned v[4];
        load_matrices_transposed(v, at);
        mma_half(part[0], high[t], v[0], v[1]);
        mma_half(part[1], high[t], v[2], v[3]);
        mma_half(part[0], low[t], v[0], v[1]);
        mma_half(part[1], low[t], v[2], v[3]);
        if constexpr (kConvert) {
          load_matrices_transposed(v, at + KvTile<kD>::kBytes);
          mma_half(part[0], high[t], v[0], v[1]);
          mma_half(part[1], high[t], v[2], v[3]);
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if constexpr (kConvert) part[j][e] *= value_factor;
          acc[2 * pair + j][e] = acc[2 * pair + j][e] * alpha[e / 2] + part[j][e];
        }
      }
    }
  }

  /// The result, or this part of the split: maximum, sum and weighted values.
  __device__ void leave() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] += __shfl_xor_sync(~0u, sum[i], 1);
      sum[i] += __shfl_xor_sync(~0u, sum[i], 2);
      if (!own.live[i]) continue;
      float factor = 1.0f;
      float* to = a.y + own.at[i] * a.kv.dv;
      if (a.n_splits > 1) {
        float* part = a.partial + (own.at[i] * a.n_splits + blockIdx.z) * (a.kv.dv + 2);
        if (lane() % 4 == 0) *reinterpret_cast<float2*>(part) = {top[i], sum[i]};
        to = part + 2;
      } else {
        float weight = 1.0f, total = sum[i];
        if (a.sinks != nullptr && top[i] != -INFINITY) {
          const float most = fmaxf(top[i], a.sinks[own.head[i]]);
          weight = expf(top[i] - most);
          total = total * weight + expf(a.sinks[own.head[i]] - most);
        }
        factor = total > 0 ? weight / total : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < 2 * kSteps; ++j) {
        const int column = 8 * j + 2 * (lane() % 4);
        if (column >= a.kv.dv) break;
        *reinterpret_cast<float2*>(to + column) = {acc[j][2 * i] * factor, acc[j][2 * i + 1] * factor};
      }
    }
  }

  const AttentionArgs& a;
  std::uint8_t* memory;
  LaneRows own;
  bool busy = false;                                // whether this warp has rows
  int first_cell = 0, last_cell = 0, end_cell = 0;  // of the block's rows; end of what they may see
  float score_factor[2] = {};
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  float acc[2 * kSteps][4] = {};
  unsigned queries[Shape::kQueriesInRegisters ? kSteps : 1][2][4];
};

template <int kD, bool kConvert>
__global__ void __launch_bounds__(kPromptThreads) prompt_attention(const __grid_constant__ AttentionArgs a) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  begin_kernel();
  // The last rows see the most cells: they begin first.
  PromptAttention<kD, kConvert>(a, memory).run(static_cast<int>(gridDim.x - 1 - blockIdx.x));
}

template <int kD>
bool launch_prompt_attention(const AttentionArgs& args, const PromptGrid& grid, cudaStream_t stream) {
  const bool convert = args.kv.k.type != DType::f16 || args.kv.v.type != DType::f16;
  auto* kernel = convert ? prompt_attention<kD, true> : prompt_attention<kD, false>;
  constexpr int kCopying = PromptShape<kD, false>::kShared, kConverting = PromptShape<kD, true>::kShared;
  const int bytes = convert ? kConverting : kCopying;
  if (bytes > grid.shared_limit) return false;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const dim3 blocks(static_cast<unsigned>(grid.tiles), static_cast<unsigned>(args.kv.n_head_kv),
                    static_cast<unsigned>(args.n_splits));
  launch(kernel, blocks, kPromptThreads, static_cast<std::size_t>(bytes), stream, args);
  return true;
}

}  // namespace ggml::cuda
