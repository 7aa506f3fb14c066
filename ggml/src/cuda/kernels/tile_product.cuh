#pragma once

#include <type_traits>

#include "cuda/kernels/decoder.cuh"
#include "cuda/kernels/device.cuh"
#include "cuda/kernels/group_product.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/mma.cuh"
#include "cuda/kernels/products.h"
#include "cuda/kernels/vector_product.cuh"

// Y = W X for many rows of activations (prompts) on the int8 tensor cores.
//
// A block of 8 warps computes 128 weight rows x kRows activation rows in stages of some units (32 weights) of K. Codes
// are unpacked to bytes in shared memory; the next stage's planes are on their way in registers, its activations in
// the background, while this one is multiplied. Tiles of 64 rows do little with a stage, so it is twice as long to
// hide the way to memory; their weights have one place, which two blocks per multiprocessor make up for. Each unit's
// integer sums are scaled in f32: the sums start at the bits of 1.5 * 2^23, so that they are floats when they are done
// and one subtraction converts them. Types with super blocks meet activations with one scale per 256 values and have
// whole numbers for scales, so that the sums of eight units are one whole number, which becomes a float at the end. A
// warp has 32 weight rows x every other 16 activation rows, so that all warps have work where few rows are real. Rows
// in shared memory are 16 bytes more than a multiple of 64 apart: no loads of fragments meet a bank twice.
namespace ggml::cuda {

inline constexpr int kTileWeights = 128;
inline constexpr int kTileThreads = 256;

template <int kRows>
struct TileShape {
  static constexpr int kStageUnits = kRows > 64 ? 2 : 4;
  static constexpr int kRowStride = kStageUnits * kUnit + 16;  // bytes
  static constexpr int kWeightStages = kRows > 64 ? 2 : 1;
};

template <class D, int kRows>
struct WeightStage {
  static constexpr int kParts = D::kHalves ? 2 : 1, kStageUnits = TileShape<kRows>::kStageUnits;
  using Scale = std::conditional_t<D::kSupers, int, float>;
  alignas(16) std::int8_t w[kTileWeights * TileShape<kRows>::kRowStride];
  Scale scale[kStageUnits][kParts][kTileWeights];
  float super[D::kSupers ? kTileWeights : 1];  // a stage lies within a super block
  float add[kStageUnits][D::kAdds ? kParts : 1][kTileWeights];
};

template <class D, int kRows>
struct InputStage {
  static constexpr int kStageUnits = TileShape<kRows>::kStageUnits;
  alignas(16) std::int8_t x[kRows * TileShape<kRows>::kRowStride];
  float d[kStageUnits][kRows];
  alignas(16) float2 s[kStageUnits][D::kAdds ? kRows : 1];  // of both halves
};

template <class D, int kRows>
struct TileMemory {
  WeightStage<D, kRows> weights[TileShape<kRows>::kWeightStages];
  InputStage<D, kRows> input[2];
  int x_row[kRows];  // input row of each activation row of the tile, -1: none
  int y_row[kRows];
};

/// The weights and activation rows of a tile.
struct TilePlace {
  std::int64_t first_row = 0;  // of the matrix
  int n0 = 0;                  // the tile's first row of it
  int expert = 0;
  int rows = 0;  // real activation rows
};

template <class D, int kRows>
class TileProduct {
  using Weights = WeightStage<D, kRows>;
  using Input = InputStage<D, kRows>;
  static constexpr int kStageUnits = TileShape<kRows>::kStageUnits, kRowStride = TileShape<kRows>::kRowStride;
  static constexpr int kWeightStages = TileShape<kRows>::kWeightStages;
  static constexpr int kParts = Weights::kParts;
  using Scale = typename Weights::Scale;
  static constexpr int kCells = kRows / 16;                                 // 8-row columns of the tile that a warp has
  static constexpr int kItems = kTileWeights * kStageUnits / kTileThreads;  // units of weights that a thread unpacks
  static constexpr int kChunks = 2 * kStageUnits;  // of 16 bytes that a stage has of an activation row
  static constexpr int kCopies = kRows * kChunks / kTileThreads;
  static_assert(kRows * kChunks % kTileThreads == 0 && kRows * kStageUnits == kTileThreads);
  static constexpr float kMagic = 12582912.0f;

 public:
  __device__ TileProduct(const ProductArgs& args, TileMemory<D, kRows>& shared, const TilePlace& where)
      : a(args), m(shared), place(where), units(args.w.k / kUnit) {
    const int row = thread() / kStageUnits;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      has_row[i] = row + i * (kTileWeights / kItems) < a.w.n - place.n0;
    }
    weight_unit = (place.first_row + place.n0 + row) * units;
    scale_unit = m.x_row[row] * units;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) copy_unit[i] = m.x_row[i * (kTileThreads / kChunks) + thread() / kChunks] * units;
  }

  __device__ void run() {
    request(0, m.input[0]);
    put(m.weights[0]);
    wait_copies<0>();
    __syncthreads();
    int now = 0;
    for (int unit = 0; unit < units; unit += kStageUnits) {
      const bool more = unit + kStageUnits < units;
      if (more) request(unit + kStageUnits, m.input[1 - now]);
#pragma unroll 1
      for (int u = 0; u < kStageUnits; ++u) multiply(m.weights[now % kWeightStages], m.input[now], u);
      if constexpr (D::kSupers) {
        if ((unit + kStageUnits) % kUnitsPerSuper == 0) end_super(m.weights[now % kWeightStages], m.input[now]);
      }
      if (!more) break;
      if constexpr (kWeightStages == 1) __syncthreads();
      put(m.weights[(1 - now) % kWeightStages]);
      wait_copies<0>();
      __syncthreads();
      now = 1 - now;
    }
    leave();
  }

 private:
  __device__ static int thread() {
    return static_cast<int>(threadIdx.x);
  }
  __device__ static int lane() {
    return thread() % kWarp;
  }
  __device__ static int first_weight() {
    return thread() / kWarp % 4 * 32;
  }
  /// The first row of a pair of the warp's columns.
  __device__ static int first_x(int pair) {
    return 32 * pair + thread() / kWarp / 4 * 16;
  }

  /// Starts reading a stage: this thread's units of weights, activations, their scales.
  __device__ void request(int unit0, Input& to) {
    const int u = thread() % kStageUnits;
    has_unit = unit0 + u < units;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (has_unit && has_row[i]) ahead[i].load(a.w, weight_unit + i * (kTileWeights / kItems) * units + unit0 + u);
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int chunk = thread() % kChunks, x = i * (kTileThreads / kChunks) + thread() / kChunks;
      const bool wanted = copy_unit[i] >= 0 && unit0 + chunk / 2 < units;
      const std::int64_t at = static_cast<std::int64_t>(wanted ? copy_unit[i] + unit0 : 0) * kUnit;
      copy_16(shared_address(to.x + x * kRowStride + 16 * chunk), a.x.q + at + 16 * chunk, wanted);
    }
    const int row = thread() / kStageUnits;
    const bool wanted = scale_unit >= 0 && has_unit;
    const std::int64_t at = wanted ? scale_unit + unit0 + u : 0;
    copy_value(&to.d[u][row], a.x.d + at, wanted);
    if constexpr (D::kAdds) copy_value(&to.s[u][row], reinterpret_cast<const float2*>(a.x.s) + at, wanted);
    end_copies();
  }

  /// Unpacks what request() read in registers.
  __device__ void put(Weights& to) {
    const int u = thread() % kStageUnits;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int row = thread() / kStageUnits + i * (kTileWeights / kItems);
      Codes codes{};
      std::conditional_t<D::kSupers, WholeScales, Scales> scales{};
      if (has_unit && has_row[i]) {
        codes = ahead[i].codes();
        if constexpr (D::kSupers) {
          scales = ahead[i].whole_scales();
        } else {
          scales = ahead[i].scales();
        }
      }
      if constexpr (D::kSupers) {
        if (u == 0) to.super[row] = scales.super;
      }
      int4* w = reinterpret_cast<int4*>(to.w + row * kRowStride + u * kUnit);
      w[0] = {codes.word[0], codes.word[1], codes.word[2], codes.word[3]};
      w[1] = {codes.word[4], codes.word[5], codes.word[6], codes.word[7]};
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        to.scale[u][part][row] = scales.scale[part];
        if constexpr (D::kAdds) to.add[u][part][row] = scales.add[part];
      }
    }
  }

  /// One unit of the warp's part of the tile.
  __device__ void multiply(const Weights& from, const Input& input, int u) {
    if (first_x(0) >= place.rows) return;
    const int group = lane() / 4, quad = lane() % 4, matrix = lane() / 8;
    unsigned w[2][4];
    Scale scale[2][kParts][2];
    float add[2][kParts][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_weight() + 16 * i;
      load_matrices(w[i], shared_address(from.w + (row + matrix % 2 * 8 + lane() % 8) * kRowStride + u * kUnit +
                                         matrix / 2 * 16));
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          scale[i][part][e] = from.scale[u][part][row + group + 8 * e];
          if constexpr (D::kAdds) add[i][part][e] = from.add[u][part][row + group + 8 * e];
        }
      }
    }
#pragma unroll
    for (int pair = 0; pair < kCells / 2; ++pair) {
      const int x0 = first_x(pair);
      if (x0 >= place.rows) break;
      unsigned x[4];
      load_matrices(
          x, shared_address(input.x + (x0 + matrix / 2 * 8 + lane() % 8) * kRowStride + u * kUnit + matrix % 2 * 16));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int cell = 2 * pair + j, t0 = x0 + 8 * j + 2 * quad;
        float2 d = {1.0f, 1.0f};
        if constexpr (!D::kSupers) d = *reinterpret_cast<const float2*>(&input.d[u][t0]);
        float s[kParts][2] = {};
        if constexpr (D::kAdds) {
          const float4 v = *reinterpret_cast<const float4*>(&input.s[u][t0]);
          s[0][0] = D::kHalves ? v.x : v.x + v.y;
          s[0][1] = D::kHalves ? v.z : v.z + v.w;
          if constexpr (D::kHalves) {
            s[1][0] = v.y;
            s[1][1] = v.w;
          }
        }
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            int c[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) c[e] = D::kSupers ? 0 : __float_as_int(kMagic);
            if constexpr (D::kHalves) {
              mma_bytes_16(c, w[i][2 * part], w[i][2 * part + 1], x[2 * j + part]);
            } else {
              mma_bytes_32(c, w[i], x[2 * j], x[2 * j + 1]);
            }
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              if constexpr (D::kSupers) {
                super[i][cell][e] += scale[i][part][e / 2] * c[e];
              } else {
                const float sum = __int_as_float(c[e]) - kMagic;
                acc[i][cell][e] += scale[i][part][e / 2] * (e % 2 == 0 ? d.x : d.y) * sum;
              }
              if constexpr (D::kAdds) acc[i][cell][e] += add[i][part][e / 2] * s[part][e % 2];
            }
          }
        }
      }
    }
  }

  /// The sums of a super block times both its scales.
  __device__ void end_super(const Weights& weights, const Input& from) {
    float scale[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scale[i / 2][i % 2] = weights.super[first_weight() + 16 * (i / 2) + lane() / 4 + 8 * (i % 2)];
    }
#pragma unroll
    for (int cell = 0; cell < kCells; ++cell) {
      const int x0 = first_x(cell / 2) + cell % 2 * 8;
      const float2 d = *reinterpret_cast<const float2*>(&from.d[0][x0 + 2 * (lane() % 4)]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          acc[i][cell][e] += (e % 2 == 0 ? d.x : d.y) * scale[i][e / 2] * static_cast<float>(super[i][cell][e]);
          super[i][cell][e] = 0;
        }
      }
    }
  }

  __device__ void leave() {
    const int group = lane() / 4, quad = lane() % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int cell = 0; cell < kCells; ++cell) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int n = place.n0 + first_weight() + 16 * i + group + e / 2 * 8;
          const int row = m.y_row[first_x(cell / 2) + cell % 2 * 8 + 2 * quad + e % 2];
          if (n < a.w.n && row >= 0)
            a.y[static_cast<std::int64_t>(row) * a.y_stride + n] = finish(a, acc[i][cell][e], n, place.expert);
        }
      }
    }
  }

  const ProductArgs& a;
  TileMemory<D, kRows>& m;
  const TilePlace place;
  const int units;
  // The first units of the rows whose weights, codes and scales this thread reads; negative: none.
  std::int64_t weight_unit;
  int copy_unit[kCopies], scale_unit;
  D ahead[kItems];
  bool has_row[kItems], has_unit = false;
  float acc[2][kCells][4] = {};
  int super[2][D::kSupers ? kCells : 1][4] = {};
};

/// Rows of one matrix, or (tiles.pairs given) pairs sorted by expert.
template <class D, int kRows>
__global__ void __launch_bounds__(kTileThreads, kRows > 64 ? 1 : 2)
    tile_product(const __grid_constant__ ProductArgs a, const __grid_constant__ ExpertTiles tiles) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  TileMemory<D, kRows>& m = *reinterpret_cast<TileMemory<D, kRows>*>(memory);
  if (!a.beside) wait_for_previous();
  allow_next();  // not before: what the next launch may begin with is known to be there (ProductArgs::beside)
  TilePlace place;
  place.n0 = static_cast<int>(blockIdx.x) * kTileWeights;
  place.first_row = a.w.first;
  const int i = static_cast<int>(threadIdx.x), tile = static_cast<int>(blockIdx.y);
  if (tiles.pairs == nullptr) {
    place.rows = live(a.rows) - tile * kRows;
    if (place.rows <= 0) return wait_for_previous();
    if (i < kRows) m.x_row[i] = m.y_row[i] = i < place.rows ? tile * kRows + i : -1;
  } else {
    place.expert = tiles.tile_expert[tile];
    if (place.expert < 0) return wait_for_previous();
    place.first_row += place.expert * a.w.rows_per_matrix;
    place.rows = tiles.tile_count[tile];
    if (i < kRows) {
      const int pair = i < place.rows ? tiles.pairs[tiles.tile_first[tile] + i] : -1;
      m.y_row[i] = pair;
      m.x_row[i] = pair < 0 ? -1 : a.experts.shared_input ? pair / a.experts.n_used : pair;
    }
  }
  __syncthreads();
  TileProduct<D, kRows>(a, m, place).run();
  wait_for_previous();
}

template <class D, int kRows>
void launch_tiles(const ProductArgs& args, const ExpertTiles& tiles, int n_tiles, cudaStream_t stream) {
  constexpr int kBytes = sizeof(TileMemory<D, kRows>);
  if constexpr (kBytes > 48 * 1024) {
    CUDA_CHECK(cudaFuncSetAttribute(tile_product<D, kRows>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  }
  const dim3 grid(static_cast<unsigned>((args.w.n + kTileWeights - 1) / kTileWeights), static_cast<unsigned>(n_tiles));
  launch(tile_product<D, kRows>, grid, kTileThreads, kBytes, stream, args, tiles);
}

template <int kBits, ScaleForm kForm, int kCenter>
void launch_tile_product(const ProductArgs& args, cudaStream_t stream) {
  using D = Decoder<kBits, kForm, kCenter>;
  const int rows = args.rows.capacity;
  if constexpr (D::kSupers) {
    if (card_limits().has_group_products) {
      return launch_group_tiles<D>(args, {}, (rows + kGroupTileRows - 1) / kGroupTileRows, 1, stream);
    }
  }
  if (tile_rows(rows) == 128) return launch_tiles<D, 128>(args, {}, (rows + 127) / 128, stream);
  launch_tiles<D, 64>(args, {}, (rows + 63) / 64, stream);
}

template <int kBits, ScaleForm kForm, int kCenter>
void launch_expert_tiles(const ProductArgs& args, const ExpertTiles& tiles, cudaStream_t stream) {
  using D = Decoder<kBits, kForm, kCenter>;
  if constexpr (D::kSupers) {
    if (card_limits().has_group_products) {
      return launch_group_tiles<D>(args, tiles, tiles.capacity, tiles.rows / kGroupTileRows, stream);
    }
  }
  if (tiles.rows == 128) return launch_tiles<D, 128>(args, tiles, tiles.capacity, stream);
  launch_tiles<D, 64>(args, tiles, tiles.capacity, stream);
}

}  // namespace ggml::cuda
