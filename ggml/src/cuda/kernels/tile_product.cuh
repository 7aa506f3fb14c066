#pragma once

#include "cuda/kernels/decoder.cuh"
#include "cuda/kernels/device.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/products.h"
#include "cuda/kernels/vector_product.cuh"

// Y = W X for many rows of activations (prompts) on the int8 tensor cores.
//
// A block of 8 warps computes 128 weight rows x 64 activation rows, two units (64 weights) of K at a time: codes are
// unpacked to bytes in shared memory, mma.m16n8k32 multiplies them, and each unit's integer sums are scaled into f32
// accumulators (types with two scales per unit: mma.m16n8k16, two per unit). Each warp has 32 x 32 of the tile. Rows in
// shared memory are 80 bytes apart: a warp's loads of fragments meet no bank twice.
namespace ggml::cuda {

inline constexpr int kTileWeights = 128;
inline constexpr int kTileThreads = 256;
inline constexpr int kStageUnits = 2;
inline constexpr int kRowStride = kStageUnits * kUnit + 16;  // bytes

__device__ __forceinline__ void mma_k32(int (&c)[4], const int (&a)[4], const int (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_k16(int (&c)[4], int a0, int a1, int b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a0), "r"(a1), "r"(b));
}

struct TileMemory {
  alignas(16) std::int8_t w[kTileWeights * kRowStride];
  alignas(16) std::int8_t x[kTileRows * kRowStride];
  float scale[kStageUnits][2][kTileWeights];
  float add[kStageUnits][2][kTileWeights];
  float d[kStageUnits][kTileRows];
  float s[kStageUnits][2][kTileRows];
  int x_row[kTileRows];  // input row of each activation row of the tile, -1: none
  int y_row[kTileRows];
};

/// Unpacks the stage's units of the tile's weight rows.
template <class D>
__device__ void stage_weights(TileMemory& m, const ProductArgs& a, std::int64_t first_row, std::int64_t n0, int unit0) {
  const int units = a.w.k / kUnit;
  for (int i = static_cast<int>(threadIdx.x); i < kTileWeights * kStageUnits; i += kTileThreads) {
    const int row = i / kStageUnits, u = i % kStageUnits;
    int* to = reinterpret_cast<int*>(m.w + row * kRowStride + u * kUnit);
    if (n0 + row >= a.w.n || unit0 + u >= units) {
#pragma unroll
      for (int j = 0; j < 8; ++j) to[j] = 0;
      m.scale[u][0][row] = m.scale[u][1][row] = m.add[u][0][row] = m.add[u][1][row] = 0.0f;
      continue;
    }
    D decoder;
    decoder.load(a.w, (first_row + n0 + row) * units + unit0 + u);
    const Codes codes = decoder.codes();
    const Scales scales = decoder.scales();
    *reinterpret_cast<int4*>(to) = {codes.word[0], codes.word[1], codes.word[2], codes.word[3]};
    *reinterpret_cast<int4*>(to + 4) = {codes.word[4], codes.word[5], codes.word[6], codes.word[7]};
    m.scale[u][0][row] = scales.scale[0];
    if constexpr (D::kHalves) m.scale[u][1][row] = scales.scale[1];
    if constexpr (D::kAdds) {
      m.add[u][0][row] = scales.add[0];
      if constexpr (D::kHalves) m.add[u][1][row] = scales.add[1];
    }
  }
}

template <class D>
__device__ void stage_activations(TileMemory& m, const ProductArgs& a, int unit0) {
  const int units = a.w.k / kUnit;
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kStageUnits; i += kTileThreads) {
    const int row = i / kStageUnits, u = i % kStageUnits;
    uint4* to = reinterpret_cast<uint4*>(m.x + row * kRowStride + u * kUnit);
    if (m.x_row[row] < 0 || unit0 + u >= units) {
      to[0] = to[1] = uint4{};
      m.d[u][row] = m.s[u][0][row] = m.s[u][1][row] = 0.0f;
      continue;
    }
    const std::int64_t at = static_cast<std::int64_t>(m.x_row[row]) * units + unit0 + u;
    const uint4* q = reinterpret_cast<const uint4*>(a.x.q) + 2 * at;
    to[0] = q[0];
    to[1] = q[1];
    m.d[u][row] = a.x.d[at];
    if constexpr (D::kAdds) {
      const float2 s = reinterpret_cast<const float2*>(a.x.s)[at];
      m.s[u][0][row] = D::kHalves ? s.x : s.x + s.y;
      m.s[u][1][row] = s.y;
    }
  }
}

/// Fragment of 16 weight rows (or 8 activation rows) and 32 codes, in the order the mma instructions want.
__device__ __forceinline__ int word_at(const std::int8_t* rows, int row, int column) {
  return *reinterpret_cast<const int*>(rows + row * kRowStride + column);
}

/// One unit of the stage: products of the warp's 32 x 32 part of the tile.
template <class D>
__device__ void multiply_unit(const TileMemory& m, int u, int w0, int x0, float (&acc)[2][4][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, group = lane / 4, quad = lane % 4;
  const int column = u * kUnit + 4 * quad;
  int a[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = w0 + 16 * i + group;
    a[i][0] = word_at(m.w, row, column);
    a[i][1] = word_at(m.w, row + 8, column);
    a[i][2] = word_at(m.w, row, column + 16);
    a[i][3] = word_at(m.w, row + 8, column + 16);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int x_row = x0 + 8 * j + group;
    const int b[2] = {word_at(m.x, x_row, column), word_at(m.x, x_row, column + 16)};
    const int t0 = x0 + 8 * j + 2 * quad;  // activation rows of this lane's results
    const float d[2] = {m.d[u][t0], m.d[u][t0 + 1]};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r0 = w0 + 16 * i + group;
      constexpr int kParts = D::kHalves ? 2 : 1;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        int c[4] = {};
        if constexpr (D::kHalves) {
          mma_k16(c, a[i][2 * part], a[i][2 * part + 1], b[part]);
        } else {
          mma_k32(c, a[i], b);
        }
        const float scale[2] = {m.scale[u][part][r0], m.scale[u][part][r0 + 8]};
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[i][j][e] += scale[e / 2] * d[e % 2] * static_cast<float>(c[e]);
        if constexpr (D::kAdds) {
          const float add[2] = {m.add[u][part][r0], m.add[u][part][r0 + 8]};
          const float s[2] = {m.s[u][part][t0], m.s[u][part][t0 + 1]};
#pragma unroll
          for (int e = 0; e < 4; ++e) acc[i][j][e] += add[e / 2] * s[e % 2];
        }
      }
    }
  }
}

/// The tile whose rows stand in m.x_row and m.y_row: weight rows first_row + n0 ...
template <class D>
__device__ void compute_tile(TileMemory& m, const ProductArgs& a, std::int64_t first_row, std::int64_t n0,
                             std::int64_t expert) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int w0 = warp % 4 * 32, x0 = warp / 4 * 32;
  float acc[2][4][4] = {};
  const int units = a.w.k / kUnit;
  for (int unit = 0; unit < units; unit += kStageUnits) {
    __syncthreads();
    stage_weights<D>(m, a, first_row, n0, unit);
    stage_activations<D>(m, a, unit);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kStageUnits; ++u) multiply_unit<D>(m, u, w0, x0, acc);
  }
  const int group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::int64_t n = n0 + w0 + 16 * i + group + e / 2 * 8;
        const int row = m.y_row[x0 + 8 * j + 2 * quad + e % 2];
        if (n < a.w.n && row >= 0)
          a.y[static_cast<std::int64_t>(row) * a.y_stride + n] = finish(a, acc[i][j][e], n, expert);
      }
    }
  }
}

template <class D>
__global__ void __launch_bounds__(kTileThreads) tile_product(const __grid_constant__ ProductArgs a) {
  __shared__ TileMemory m;
  begin_kernel();
  const int rows = live(a.rows);
  const int first = static_cast<int>(blockIdx.y) * kTileRows;
  if (first >= rows) return;
  if (threadIdx.x < kTileRows) {
    const int row = first + static_cast<int>(threadIdx.x);
    m.x_row[threadIdx.x] = m.y_row[threadIdx.x] = row < rows ? row : -1;
  }
  __syncthreads();
  compute_tile<D>(m, a, a.w.first, static_cast<std::int64_t>(blockIdx.x) * kTileWeights, 0);
}

template <class D>
__global__ void __launch_bounds__(kTileThreads) expert_tiles(const __grid_constant__ ProductArgs a, ExpertTiles tiles) {
  __shared__ TileMemory m;
  begin_kernel();
  const int expert = tiles.tile_expert[blockIdx.y];
  if (expert < 0) return;
  if (threadIdx.x < kTileRows) {
    const int i = static_cast<int>(threadIdx.x);
    const int pair = i < tiles.tile_count[blockIdx.y] ? tiles.pairs[tiles.tile_first[blockIdx.y] + i] : -1;
    m.y_row[i] = pair;
    m.x_row[i] = pair < 0 ? -1 : a.experts.shared_input ? pair / a.experts.n_used : pair;
  }
  __syncthreads();
  compute_tile<D>(m, a, a.w.first + expert * a.w.rows_per_matrix, static_cast<std::int64_t>(blockIdx.x) * kTileWeights,
                  expert);
}

inline unsigned weight_tiles(const ProductArgs& args) {
  return static_cast<unsigned>((args.w.n + kTileWeights - 1) / kTileWeights);
}

template <int kBits, ScaleForm kForm, int kCenter>
void launch_tile_product(const ProductArgs& args, cudaStream_t stream) {
  const dim3 grid(weight_tiles(args), static_cast<unsigned>((args.rows.capacity + kTileRows - 1) / kTileRows));
  launch(tile_product<Decoder<kBits, kForm, kCenter>>, grid, kTileThreads, 0, stream, args);
}

template <int kBits, ScaleForm kForm, int kCenter>
void launch_expert_tiles(const ProductArgs& args, const ExpertTiles& tiles, cudaStream_t stream) {
  const dim3 grid(weight_tiles(args), static_cast<unsigned>(tiles.capacity));
  launch(expert_tiles<Decoder<kBits, kForm, kCenter>>, grid, kTileThreads, 0, stream, args, tiles);
}

}  // namespace ggml::cuda
