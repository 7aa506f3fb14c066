#include "cuda/kernels/latent_attention.h"

#include "cuda/kernels/prompt_attention.cuh"

// Attention of many rows over latents, on the tensor cores (compare prompt_attention.cuh, whose arithmetic it shares).
//
// A block of eight warps takes 64 rows, a row being a query head of a token, and tiles of 32 keys, which serve as
// values too. Queries lie in shared memory as two planes of halves. Two warps share 16 rows: each computes the scores
// of half of a tile's keys, both weigh all of them, each sums half of the columns of the values. With keys of 576
// elements a block takes all of a Hopper multiprocessor's shared memory: 146 KiB of queries, two stages of 36.5 KiB of
// keys, 8 KiB of scores. Bound by the tensor cores and by reading fragments in about equal parts.
namespace ggml::cuda {
namespace {

constexpr int kMostKey = 576, kMostValue = 512;
constexpr int kThreads = 256;
constexpr int kTileKeys = 32;
constexpr int kStride =
    2 * kMostKey + 16;  // bytes of a row of halves; the 16 beyond it meet all banks, and hold a factor
constexpr int kPlane = kPromptRows * kStride;
constexpr int kStage = kTileKeys * kStride;
constexpr int kScores = kPromptRows * kTileKeys * static_cast<int>(sizeof(float));
constexpr int kShared = 2 * kPlane + 2 * kStage + kScores;
constexpr int kPairs = kMostValue / 2 / 16;  // of runs of 8 columns, per warp
constexpr int kMaxSplits = 16;

class LatentAttention {
 public:
  __device__ LatentAttention(const AttentionArgs& args, std::uint8_t* shared) : a(args), memory(shared) {}

  __device__ void run(int tile) {
    const int group = a.n_head / a.kv.n_head_kv;
    const RowTile rows = find_tile(a.in, group, tile);
    if (rows.rows == 0) return;
    const int last = min(rows.first + kPromptRows, rows.rows) - 1;
    end_cell = rows.span.first_cell + last / group + 1;
    load_queries(rows, group);
    place_rows(rows, group);
    walk(rows.span);
    leave();
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  __device__ static int strip() { return warp() % 4; }  // which 16 rows
  __device__ static int half() { return warp() / 4; }   // of a tile's keys, of the columns of values
  __device__ int head_kv() const { return static_cast<int>(blockIdx.y); }
  __device__ std::uint8_t* stage(int i) const { return memory + 2 * kPlane + i * kStage; }

  /// token * n_head + head of a row of the tile; negative beyond the last.
  __device__ std::int64_t place_of_row(const RowTile& tile, int group, int row) const {
    const int at = tile.first + row;
    if (at >= tile.rows) return -1;
    return static_cast<std::int64_t>(tile.span.first_row + at / group) * a.n_head + head_kv() * group + at % group;
  }

  __device__ void place_rows(const RowTile& tile, int group) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = strip() * 16 + lane() / 4 + 8 * i;
      at[i] = place_of_row(tile, group, row);
      last_seen[i] = at[i] < 0 ? -1 : tile.span.first_cell + (tile.first + row) / group;
      score_factor[i] = *reinterpret_cast<const float*>(memory + row * kStride + 2 * kMostKey) * a.scale;
    }
  }

  /// Queries times a power of two as two planes of halves, a warp per row; what undoes the power behind each row.
  __device__ void load_queries(const RowTile& tile, int group) {
    for (int row = warp(); row < kPromptRows; row += kThreads / kWarp) {
      const std::int64_t place = place_of_row(tile, group, row);
      const float* q = a.q + place * a.kv.dk;
      float bound = 0;
      for (int i = lane(); place >= 0 && i < a.kv.dk; i += kWarp) bound = fmaxf(bound, fabsf(q[i]));
      const PowerOfTwo scale = scale_to_bits<9>(warp_max(bound));
      std::uint8_t* to = memory + row * kStride;
      for (int i = 2 * lane(); i < a.kv.dk; i += 2 * kWarp) {
        const float2 v = place < 0 ? float2{} : *reinterpret_cast<const float2*>(q + i);
        unsigned high, low;
        split_pair(v.x * scale.factor, v.y * scale.factor, high, low);
        *reinterpret_cast<unsigned*>(to + 2 * i) = high;
        *reinterpret_cast<unsigned*>(to + kPlane + 2 * i) = low;
      }
      if (lane() == 0) *reinterpret_cast<float*>(to + 2 * kMostKey) = scale.inverse;
    }
    __syncthreads();
  }

  __device__ void start_copies(const AttnSpan& span, int index, int to_stage) const {
    const std::uint8_t* block = block_of(a.in, span, index * kTileKeys / kTokens, a.kv.block_bytes);
    const std::uint8_t* keys = block + head_kv() * a.kv.k_head + index * kTileKeys % kTokens * a.kv.k.row_bytes;
    const int n = block == nullptr ? 0 : min(kTileKeys, end_cell - index * kTileKeys), chunks = a.kv.dk / 8;
    const unsigned to = shared_address(stage(to_stage));
    for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * chunks; i += kThreads) {
      const int token = i / chunks, chunk = i % chunks;
      copy_16(to + token * kStride + 16 * chunk, keys + token * a.kv.k.row_bytes + 16 * chunk, token < n);
    }
  }

  /// Every n_splits-th tile. Latents have no windows: all blocks are there.
  __device__ void walk(const AttnSpan& span) {
    int index = static_cast<int>(blockIdx.z), now = 0;
    if (index * kTileKeys < end_cell) start_copies(span, index, now);
    end_copies();
    for (; index * kTileKeys < end_cell; index += a.n_splits, now = 1 - now) {
      const int next = index + a.n_splits;
      if (next * kTileKeys < end_cell) start_copies(span, next, 1 - now);
      end_copies();
      wait_copies<1>();
      __syncthreads();
      const unsigned keys = shared_address(stage(now));
      score(keys, index);
      __syncthreads();
      float s[4][4], alpha[2];
      weigh(s, alpha);
      add_values(keys, s, alpha);
      __syncthreads();
    }
    wait_copies<0>();
  }

  /// Where a row's scores of a pair of keys lie; rows shift their columns, so that eight of them meet all banks.
  __device__ float2* score_at(int row, int key) const {
    auto* scores = reinterpret_cast<float*>(memory + 2 * kPlane + 2 * kStage);
    return reinterpret_cast<float2*>(scores + row * kTileKeys + (key ^ (row % 8 * 4)));
  }

  /// Scores of this warp's rows and half of the keys, to shared memory.
  __device__ void score(unsigned keys, int index) const {
    float s[2][4] = {};
    const int matrix = lane() / 8;
    const unsigned row =
        static_cast<unsigned>((strip() * 16 + matrix % 2 * 8 + lane() % 8) * kStride + matrix / 2 * 16);
    const unsigned queries = shared_address(memory) + row;
    const unsigned from =
        keys + static_cast<unsigned>((half() * 16 + matrix / 2 * 8 + lane() % 8) * kStride + matrix % 2 * 16);
#pragma unroll 4
    for (int step = 0; step < a.kv.dk / 16; ++step) {
      unsigned high[4], low[4], k[4];
      load_matrices(high, queries + 32 * step);
      load_matrices(low, queries + kPlane + 32 * step);
      load_matrices(k, from + 32 * step);
      mma_half(s[0], high, k[0], k[1]);
      mma_half(s[1], high, k[2], k[3]);
      mma_half(s[0], low, k[0], k[1]);
      mma_half(s[1], low, k[2], k[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int key = half() * 16 + 8 * n + 2 * (lane() % 4), cell = index * kTileKeys + key;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float x = cell <= last_seen[i] ? s[n][2 * i] * score_factor[i] : -INFINITY;
        const float y = cell + 1 <= last_seen[i] ? s[n][2 * i + 1] * score_factor[i] : -INFINITY;
        *score_at(strip() * 16 + lane() / 4 + 8 * i, key) = {x, y};
      }
    }
  }

  /// Weights relative to the new maximum; alpha is what earlier sums must be multiplied by.
  __device__ void weigh(float (&s)[4][4], float (&alpha)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float most = top[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 v = *score_at(strip() * 16 + lane() / 4 + 8 * i, 8 * j + 2 * (lane() % 4));
        s[j][2 * i] = v.x;
        s[j][2 * i + 1] = v.y;
        most = fmaxf(most, fmaxf(v.x, v.y));
      }
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const float base = most == -INFINITY ? 0.0f : most;
      alpha[i] = exp2_near((top[i] - base) * kLog2E);
      top[i] = most;
      float total = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int e = 2 * i; e < 2 * i + 2; ++e) {
          s[j][e] = exp2_near((s[j][e] - base) * kLog2E);
          total += s[j][e];
        }
      }
      sum[i] = sum[i] * alpha[i] + total;
    }
  }

  __device__ int first_column() const {
    return half() * (a.kv.dv / 2);
  }

  __device__ void add_values(unsigned keys, const float (&s)[4][4], const float (&alpha)[2]) {
    unsigned high[2][4], low[2][4];
#pragma unroll
    for (int t = 0; t < 2; ++t) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&w)[4] = s[2 * t + j / 2];
        split_pair(w[j % 2 * 2], w[j % 2 * 2 + 1], high[t][j], low[t][j]);
      }
    }
    const int matrix = lane() / 8;
    const unsigned from =
        keys + static_cast<unsigned>((matrix % 2 * 8 + lane() % 8) * kStride + matrix / 2 * 16 + 2 * first_column());
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      if (32 * pair >= a.kv.dv) continue;
      float part[2][4] = {};
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        unsigned v[4];
        load_matrices_transposed(v, from + t * 16 * kStride + 32 * pair);
        mma_half(part[0], high[t], v[0], v[1]);
        mma_half(part[1], high[t], v[2], v[3]);
        mma_half(part[0], low[t], v[0], v[1]);
        mma_half(part[1], low[t], v[2], v[3]);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[2 * pair + j][e] = acc[2 * pair + j][e] * alpha[e / 2] + part[j][e];
      }
    }
  }

  /// The result, or this part of the split: maximum, sum and weighted values.
  __device__ void leave() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] += __shfl_xor_sync(~0u, sum[i], 1);
      sum[i] += __shfl_xor_sync(~0u, sum[i], 2);
      if (at[i] < 0) continue;
      float factor = sum[i] > 0 ? 1.0f / sum[i] : 0.0f;
      float* to = a.y + at[i] * a.kv.dv;
      if (a.n_splits > 1) {
        float* part = a.partial + (at[i] * a.n_splits + blockIdx.z) * (a.kv.dv + 2);
        if (half() == 0 && lane() % 4 == 0) *reinterpret_cast<float2*>(part) = {top[i], sum[i]};
        to = part + 2;
        factor = 1.0f;
      }
#pragma unroll
      for (int j = 0; j < 2 * kPairs; ++j) {
        if (16 * j >= a.kv.dv) break;
        const int column = first_column() + 8 * j + 2 * (lane() % 4);
        *reinterpret_cast<float2*>(to + column) = {acc[j][2 * i] * factor, acc[j][2 * i + 1] * factor};
      }
    }
  }

  const AttentionArgs& a;
  std::uint8_t* memory;
  int end_cell = 0;  // of what the block's rows may see
  std::int64_t at[2];
  int last_seen[2];
  float score_factor[2];
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  float acc[2 * kPairs][4] = {};
};

__global__ void __launch_bounds__(kThreads, 1) latent_attention(const __grid_constant__ AttentionArgs a) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  begin_kernel();
  // The last rows see the most cells: they begin first.
  LatentAttention(a, memory).run(static_cast<int>(gridDim.x - 1 - blockIdx.x));
}

int tiles_of(int tokens, int group) {
  return (tokens * group + kPromptRows - 1) / kPromptRows;
}

}  // namespace

bool has_latent_attention(const AttentionArgs& args) {
  const KvPlanes& kv = args.kv;
  const bool sizes = kv.v_values == 0 && kv.dk <= kMostKey && kv.dv <= kMostValue && kv.dk % 16 == 0 && kv.dv % 32 == 0;
  const bool plain =
      args.causal && args.window_kind == WindowKind::none && args.softcap == 0.0f && args.max_alibi_bias == 0.0f;
  if (!sizes || !plain || kv.k.type != DType::f16) return false;
  int device = 0, bytes = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes >= kShared;
}

int latent_attention_splits(int tokens, int n_head, int n_head_kv, int multiprocessors) noexcept {
  const int blocks = tiles_of(tokens, n_head / n_head_kv) * n_head_kv;
  int splits = 1;
  while (splits < kMaxSplits && 2 * blocks * splits <= multiprocessors) splits *= 2;
  return splits;
}

void launch_latent_attention(const AttentionArgs& args, int max_spans, cudaStream_t stream) {
  CUDA_CHECK(cudaFuncSetAttribute(latent_attention, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  // Each span may end with a tile that is not full.
  const int tiles = tiles_of(args.tokens.capacity, args.n_head / args.kv.n_head_kv) + max_spans;
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(args.kv.n_head_kv),
                  static_cast<unsigned>(args.n_splits));
  launch(latent_attention, grid, kThreads, static_cast<std::size_t>(kShared), stream, args);
  if (args.n_splits > 1) launch_join_splits(args, stream);
}

}  // namespace ggml::cuda
