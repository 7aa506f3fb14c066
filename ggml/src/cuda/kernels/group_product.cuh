#pragma once

#include "cuda/kernels/decoder.cuh"
#include "cuda/kernels/device.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/mma.cuh"
#include "cuda/kernels/products.h"
#include "cuda/kernels/vector_product.cuh"
#include "cuda/kernels/warp_group_mma.cuh"

// Y = W X for many rows of activations and weights in super blocks of 256, on the tensor cores of compute capability
// 9.0 (wgmma; other cards take tile_product.cuh).
//
// A block of two warp groups computes 128 weight rows x up to 64 activation rows, a super block of K at a time. Packed
// weights and activations come to shared memory in the background, one super block ahead. Each warp unpacks its own 16
// rows right into fragments, so that nothing unpacked passes through shared memory. A weight is a whole number (code
// times unit scale) of 10 to 14 bits, two bytes: products with the upper one of all 256, their sums shifted, then
// products with the lower one on top, which is exact and leaves one conversion to f32 per 256 weights.
//
//   k_min  code * (scale / 8) and code * (scale % 8): at most 31 * 7, four in a word by one multiplication. Minima
//   times
//          sums of codes, both exact in halves (sums as two parts), are one more product of 16 per super block.
//   k_16   (code - 32) * scale, two to a word, the upper byte signed.
//
// 128 registers, two blocks per multiprocessor: while one group unpacks or scales, the others multiply.
namespace ggml::cuda {

inline constexpr int kGroupTileWeights = 2 * kGroupRows, kGroupTileRows = 64, kGroupTileThreads = 2 * kGroupThreads;
inline constexpr int kSuper = kUnit * kUnitsPerSuper;

/// The bytes of a super block's row of a plane in shared memory, apart so that no fragment meets a bank twice.
inline constexpr int kGroupCodeStride = 16 * kUnitsPerSuper + 16;

template <class D>
struct GroupStage {
  static constexpr int kHighBytes = D::Codes_::kHighBytes * kUnitsPerSuper, kHighStride = kHighBytes + 16;
  alignas(1024) std::int8_t x[2][kGroupTileRows * kSwizzledRow];  // halves of the super block
  alignas(16) std::uint8_t codes[kGroupTileWeights * kGroupCodeStride];
  alignas(16) std::uint8_t high[kHighBytes > 0 ? kGroupTileWeights* kHighStride : 16];
  alignas(16) std::uint8_t scales[kGroupTileWeights][16];
  alignas(16) uint2 sums[D::kAdds ? kGroupTileRows * 4 : 1];  // of codes; units 2 i, 2 i + 1: lower 4 bits, the rest
  float d[kGroupTileRows];
};

template <class D>
struct GroupMemory {
  GroupStage<D> stage[2];
  alignas(16) float4 own_sums[D::kAdds ? kGroupTileThreads : 1];  // what each thread turns into GroupStage::sums
  float own_d[D::kAdds ? kGroupTileThreads : 1];
  int x_row[kGroupTileRows];  // input row of each activation row of the tile, -1: none
  int y_row[kGroupTileRows];
};

__device__ __forceinline__ unsigned bits_of(__half2 v) {
  return *reinterpret_cast<const unsigned*>(&v);
}

/// What a block multiplies: a tile of weights with one of activation rows.
struct GroupPlace {
  std::int64_t first_row = 0;  // of the matrix
  int n0 = 0;                  // the tile's first row of it
  int expert = 0;
  int rows = 0;  // real activation rows
};

/// Brings super blocks to shared memory.
template <class D>
class GroupSource {
  using Stage = GroupStage<D>;

 public:
  __device__ GroupSource(const ProductArgs& args, GroupMemory<D>& shared, const GroupPlace& where)
      : a(args), m(shared), place(where), supers(args.w.k / kSuper) {}

  /// Starts reading a super block of the weights.
  __device__ void request_weights(Stage& to, int super) const {
    copy_plane<8, kGroupCodeStride>(to.codes, a.w.codes, super);
    if constexpr (Stage::kHighBytes > 0) {
      copy_plane<Stage::kHighBytes / 16, Stage::kHighStride>(to.high, a.w.high, super);
    }
    if (thread() < kGroupTileWeights) copy_plane<1, 16>(to.scales[0], a.w.scales, super);
  }

  /// The same of the activations; ends the group of copies.
  __device__ void request_rows(Stage& to, int super) const {
    constexpr int kPieces = kSuper / 16, kEach = kGroupTileRows * kPieces / kGroupTileThreads;
    const int piece = thread() % kPieces;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = thread() / kPieces + i * (kGroupTileThreads / kPieces), x_row = m.x_row[row];
      const std::int8_t* from = a.x.q + static_cast<std::int64_t>(x_row) * a.w.k + (super * kSuper + 16 * piece);
      copy_16(shared_address(to.x[piece / 8] + swizzled(row, piece % 8)), from, x_row >= 0);
    }
    const int units = a.w.k / kUnit, unit0 = super * kUnitsPerSuper;
    if constexpr (D::kAdds) {
      const int x_row = m.x_row[thread() / 4];
      const std::int64_t unit = static_cast<std::int64_t>(x_row) * units + unit0;
      copy_16(shared_address(&m.own_sums[thread()]), a.x.s + 2 * unit + 4 * (thread() % 4), x_row >= 0);
      copy_value(&m.own_d[thread()], a.x.d + unit, x_row >= 0);
    } else if (thread() < kGroupTileRows) {
      const int x_row = m.x_row[thread()];
      copy_value(&to.d[thread()], a.x.d + static_cast<std::int64_t>(x_row) * units + unit0, x_row >= 0);
    }
    end_copies();
  }

  /// Waits until a requested super block is there for all.
  __device__ void arrive(Stage& stage) const {
    wait_copies<0>();
    if constexpr (D::kAdds) {
      const float4 s = m.own_sums[thread()];  // values; their scale gives back the whole numbers
      const float d = m.own_d[thread()];
      const int n0 = codes_of(s.x + s.y, d), n1 = codes_of(s.z + s.w, d);
      const __half2 low = __floats2half2_rn(static_cast<float>(n0 & 15), static_cast<float>(n1 & 15));
      const __half2 rest = __floats2half2_rn(static_cast<float>(n0 & ~15), static_cast<float>(n1 & ~15));
      stage.sums[thread()] = {bits_of(low), bits_of(rest)};
      if (thread() % 4 == 0) stage.d[thread() / 4] = d;
    }
    publish_to_tensor_cores();
    __syncthreads();
  }

  [[nodiscard]] __device__ int n_supers() const {
    return supers;
  }
  /// Of a weight row of the tile: the scales of a super block as they lie in the plane.
  [[nodiscard]] __device__ unsigned super_scales(int row, int super) const {
    const std::int64_t at = (place.first_row + (place.n0 + row < a.w.n ? place.n0 + row : 0)) * supers + super;
    if constexpr (D::kAdds) return reinterpret_cast<const unsigned*>(a.w.supers)[at];
    return reinterpret_cast<const std::uint16_t*>(a.w.supers)[at];
  }

 private:
  __device__ static int thread() {
    return static_cast<int>(threadIdx.x);
  }

  /// The sum of 32 codes from that of their values.
  __device__ static int codes_of(float values, float d) {
    constexpr int kMost = kUnit * 128;
    const int n = d == 0.0f ? 0 : __float2int_rn(__fdividef(values, d));
    return min(max(n, -kMost), kMost);
  }

  /// kPieces of 16 bytes per weight row of a plane. Most of an address is the same for the block, the rest has 32 bits.
  template <int kPieces, int kStride>
  __device__ void copy_plane(std::uint8_t* to, const std::uint8_t* plane, int super) const {
    constexpr int kFit = kGroupTileThreads / kPieces, kRows = kFit < kGroupTileWeights ? kFit : kGroupTileWeights;
    const int row = thread() / kPieces, piece = thread() % kPieces, pitch = supers * kPieces * 16;
    const std::uint8_t* from = plane + (place.first_row + place.n0) * pitch + super * (kPieces * 16);
    const auto own = static_cast<unsigned>(row * pitch + piece * 16);
    const unsigned there = shared_address(to) + static_cast<unsigned>(row * kStride + piece * 16);
    const int left = static_cast<int>(a.w.n) - place.n0 - row;
#pragma unroll
    for (int i = 0; i < kGroupTileWeights / kRows; ++i) {
      copy_16(there + i * kRows * kStride, from + own + static_cast<unsigned>(i * kRows * pitch), i * kRows < left);
    }
  }

  const ProductArgs& a;
  GroupMemory<D>& m;
  const GroupPlace place;
  const int supers;
};

/// What a lane has of a unit of one row: codes 4 quad .. and 16 + 4 quad .., scales of two units.
struct LaneUnit {
  unsigned nibbles, high, scales;
};

template <class D, int kCols>
class GroupProduct {
  using Stage = GroupStage<D>;
  static constexpr int kBits = D::Codes_::kHighBytes == 0 ? 4 : D::Codes_::kHighBytes == 4 ? 5 : 6;
  static constexpr int kSums = kCols / 2;
  static constexpr bool kSplits = D::kHalves;  // k_16
  static constexpr int kLowBits = kSplits ? 8 : 3;
  static constexpr bool kKeepsLow = kSplits && kCols <= 32;  // room in registers for lower bytes made with the upper
  enum class Part { upper, lower };

 public:
  __device__ explicit GroupProduct(int n_rows)
      : rows(n_rows),
        group(static_cast<int>(threadIdx.x) % kWarp / 4),
        quad(static_cast<int>(threadIdx.x) % 4),
        row0(static_cast<int>(threadIdx.x) / kWarp * 16 + group) {}

  /// The first of the thread's two weight rows of the tile; the other is 8 further on.
  [[nodiscard]] __device__ int weight_row() const { return row0; }

  /// Adds a super block's products; scales0 and scales1 are the super_scales() of the thread's two rows.
  __device__ void multiply(const Stage& from, unsigned scales0, unsigned scales1) {
    int sums[kSums];
    unsigned upper[kUnitsPerSuper][4], lower[kUnitsPerSuper][4];
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0;
    hold(sums);
    issue<Part::upper>(from, sums, upper, lower);
    if constexpr (D::kAdds) add_minima(from, -upper_half(scales0), -upper_half(scales1));
    end(sums, upper);
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] <<= kLowBits;
    hold(sums);
    issue<Part::lower>(from, sums, lower, lower);
    end(sums, lower);
    const float d0 = lower_half(scales0), d1 = lower_half(scales1);
#pragma unroll
    for (int j = 0; j < kCols / 8; ++j) {
      if (8 * j >= rows) break;
      const float2 d = *reinterpret_cast<const float2*>(&from.d[8 * j + 2 * quad]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        acc[4 * j + e] += (e < 2 ? d0 : d1) * (e % 2 == 0 ? d.x : d.y) * static_cast<float>(sums[4 * j + e]);
      }
    }
  }

  /// Writes the sums, of weight rows from n0 on.
  __device__ void leave(const ProductArgs& a, const int* y_row, int n0, int expert) const {
    const Epilogue& after = a.epilogue;
    const float scale = after.scale == nullptr ? 1.0f : after.scale[after.scale_per_expert ? expert : 0];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int n = n0 + row0 + 8 * i;
      if (n >= a.w.n) break;
      const float bias = after.bias == nullptr ? 0.0f : after.bias[expert * after.bias_stride + n];
#pragma unroll
      for (int j = 0; j < kCols / 8; ++j) {
        if (8 * j >= rows) break;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int row = y_row[8 * j + 2 * quad + e];
          if (row >= 0) a.y[static_cast<std::int64_t>(row) * a.y_stride + n] = acc[4 * j + 2 * i + e] * scale + bias;
        }
      }
    }
  }

 private:
  __device__ static float lower_half(unsigned v) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(v & 0xffffu)));
  }
  __device__ static float upper_half(unsigned v) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(v >> 16)));
  }

  /// Unpacks one byte of the weights' two into `w` and multiplies it, in the background.
  template <Part kPart>
  __device__ void issue(const Stage& from, int (&sums)[kSums], unsigned (&w)[kUnitsPerSuper][4],
                        unsigned (&lower)[kUnitsPerSuper][4]) {
    constexpr bool kUnpacks = kPart == Part::upper || !kKeepsLow;
    const std::uint64_t x[2] = {swizzled_matrix(shared_address(from.x[0])), swizzled_matrix(shared_address(from.x[1]))};
    LaneUnit next[2] = {};
    if constexpr (kUnpacks) next[0] = load(from, row0, 0, next[0]), next[1] = load(from, row0 + 8, 0, next[1]);
#pragma unroll
    for (int u = 0; u < kUnitsPerSuper; ++u) {
      if constexpr (kUnpacks) {
        const LaneUnit now[2] = {next[0], next[1]};
        if (u + 1 < kUnitsPerSuper) {
          next[0] = load(from, row0, u + 1, now[0]);
          next[1] = load(from, row0 + 8, u + 1, now[1]);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) unpack<kPart>(now[i], u, w[u][i], w[u][2 + i], lower[u][i], lower[u][2 + i]);
      }
      begin_group_products();
      multiply_group<kSplits && kPart == Part::upper>(sums, w[u], x[u / 4] + u % 4 * (kUnit / 16),
                                                      kPart == Part::lower || u > 0);
    }
    commit_group_products();
  }
  __device__ static void end(int (&sums)[kSums], unsigned (&w)[kUnitsPerSuper][4]) {
    wait_group_products();
    hold(sums);
#pragma unroll
    for (int u = 0; u < kUnitsPerSuper; ++u) hold(w[u]);
  }

  /// `before`: the unit before this one, whose word of scales may be the same.
  __device__ LaneUnit load(const Stage& from, int row, int u, const LaneUnit& before) const {
    LaneUnit unit;
    unit.nibbles = *reinterpret_cast<const unsigned*>(from.codes + row * kGroupCodeStride + 16 * u + 4 * quad);
    unit.high = 0;
    if constexpr (kBits == 5)
      unit.high = *reinterpret_cast<const unsigned*>(from.high + row * Stage::kHighStride + 4 * u);
    if constexpr (kBits == 6) {
      unit.high = *reinterpret_cast<const unsigned*>(from.high + row * Stage::kHighStride + 8 * u + 4 * (quad % 2));
    }
    unit.scales = u % 2 == 1 ? before.scales : *reinterpret_cast<const unsigned*>(from.scales[row] + 2 * u);
    return unit;
  }

  template <Part kPart>
  __device__ void unpack(const LaneUnit& unit, int u, unsigned& first, unsigned& second, unsigned& first_low,
                         unsigned& second_low) const {
    unsigned codes0 = unit.nibbles & 0x0f0f0f0fu, codes1 = unit.nibbles >> 4 & 0x0f0f0f0fu;
    if constexpr (kBits == 5) {
      const unsigned h = unit.high >> quad;
      codes0 |= h << 4 & 0x10101010u;
      codes1 |= h & 0x10101010u;
    } else if constexpr (kBits == 6) {
      const unsigned h = unit.high >> 2 * (quad / 2);
      codes0 |= h << 4 & 0x30303030u;
      codes1 |= h & 0x30303030u;
    }
    const unsigned s = unit.scales >> 16 * (u % 2);
    if constexpr (kSplits) {
      split<kPart>(codes0, static_cast<std::int8_t>(s & 255), first, first_low);
      split<kPart>(codes1, static_cast<std::int8_t>(s >> 8 & 255), second, second_low);
    } else {
      const unsigned factor = kPart == Part::upper ? s >> 3 & 7 : s & 7;
      first = codes0 * factor;
      second = codes1 * factor;
    }
  }

  /// Four products (code - 32) * scale, of 16 bits each, two to a word; 2^15 is added so that none borrows from its
  /// neighbour. The upper byte of a product is signed, the lower is not.
  template <Part kPart>
  __device__ static void split(unsigned codes, int scale, unsigned& word, unsigned& low) {
    constexpr unsigned kBoth = 0x10001u;
    const unsigned added = kBoth * (1u << 15) - static_cast<unsigned>(scale) * (32 * kBoth);
    const unsigned even = __byte_perm(codes, 0, 0x4240) * static_cast<unsigned>(scale) + added;
    const unsigned odd = __byte_perm(codes, 0, 0x4341) * static_cast<unsigned>(scale) + added;
    if constexpr (kPart == Part::upper) word = __byte_perm(even, odd, 0x7351) ^ 0x80808080u;
    if constexpr (kPart == Part::lower) word = __byte_perm(even, odd, 0x6240);
    if constexpr (kPart == Part::upper && kKeepsLow) low = __byte_perm(even, odd, 0x6240);
  }

  /// Minima of the units times the sums of their codes.
  __device__ void add_minima(const Stage& from, float factor0, float factor1) {
    unsigned minima[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned s = *reinterpret_cast<const unsigned*>(from.scales[row0 + 8 * i] + 4 * quad);
      const unsigned from_1024 = __byte_perm(s, 0x64646464u, 0x4341);  // two halves 1024 + minimum
      minima[i] = minima[2 + i] =
          bits_of(__hsub2(*reinterpret_cast<const __half2*>(&from_1024), __floats2half2_rn(1024.0f, 1024.0f)));
    }
#pragma unroll
    for (int j = 0; j < kCols / 8; ++j) {
      if (8 * j >= rows) break;
      const uint2 s = from.sums[(8 * j + group) * 4 + quad];
      const float2 d = *reinterpret_cast<const float2*>(&from.d[8 * j + 2 * quad]);
      float c[4] = {};
      mma_half(c, minima, s.x, s.y);
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[4 * j + e] += (e < 2 ? factor0 : factor1) * (e % 2 == 0 ? d.x : d.y) * c[e];
    }
  }

  const int rows;  // real activation rows
  const int group, quad, row0;
  float acc[kSums] = {};
};

template <class D, int kCols>
__device__ void multiply_group_tile(const ProductArgs& a, GroupMemory<D>& m, const GroupSource<D>& source,
                                    const GroupPlace& place) {
  GroupProduct<D, kCols> product(place.rows);
  const int row = product.weight_row(), supers = source.n_supers();
  source.arrive(m.stage[0]);
#pragma unroll 1
  for (int super = 0;; ++super) {
    const unsigned scales0 = source.super_scales(row, super), scales1 = source.super_scales(row + 8, super);
    const bool more = super + 1 < supers;
    GroupStage<D>& next = m.stage[1 - super % 2];
    if (more) {
      source.request_weights(next, super + 1);
      source.request_rows(next, super + 1);
    }
    product.multiply(m.stage[super % 2], scales0, scales1);
    if (!more) break;
    source.arrive(next);
  }
  product.leave(a, m.y_row, place.n0, place.expert);
}

/// Rows of one matrix, or (tiles.pairs given) pairs sorted by expert; of tiles of more rows, blockIdx.z takes a part.
template <class D>
__global__ void __launch_bounds__(kGroupTileThreads, 2)
    group_product(const __grid_constant__ ProductArgs a, const __grid_constant__ ExpertTiles tiles) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  auto& m = *reinterpret_cast<GroupMemory<D>*>(memory + (1024 - shared_address(memory) % 1024) % 1024);
  if (!a.beside) wait_for_previous();
  allow_next();  // not before: what the next launch may begin with is known to be there (ProductArgs::beside)
  const int i = static_cast<int>(threadIdx.x), tile = static_cast<int>(blockIdx.y);
  GroupPlace place;
  place.first_row = a.w.first;
  place.n0 = static_cast<int>(blockIdx.x) * kGroupTileWeights;
  int pair = -1;
  if (tiles.pairs == nullptr) {
    place.rows = live(a.rows) - tile * kGroupTileRows;
    if (i < min(place.rows, kGroupTileRows)) pair = tile * kGroupTileRows + i;
  } else if (place.expert = tiles.tile_expert[tile]; place.expert >= 0) {
    const int skipped = static_cast<int>(blockIdx.z) * kGroupTileRows;
    place.first_row += place.expert * a.w.rows_per_matrix;
    place.rows = tiles.tile_count[tile] - skipped;
    if (i < min(place.rows, kGroupTileRows)) pair = tiles.pairs[tiles.tile_first[tile] + skipped + i];
  }
  if (place.rows <= 0) return wait_for_previous();
  const GroupSource<D> source(a, m, place);
  source.request_weights(m.stage[0], 0);
  if (i < kGroupTileRows) {
    m.y_row[i] = pair;
    m.x_row[i] = pair >= 0 && a.experts.shared_input ? pair / a.experts.n_used : pair;
  }
  __syncthreads();
  source.request_rows(m.stage[0], 0);
  if (place.rows <= 32) {
    multiply_group_tile<D, 32>(a, m, source, place);
  } else {
    multiply_group_tile<D, 64>(a, m, source, place);
  }
  wait_for_previous();
}

template <class D>
void launch_group_tiles(const ProductArgs& args, const ExpertTiles& tiles, int n_tiles, int parts,
                        cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(GroupMemory<D>)) + 1024;  // for its alignment
  use_shared_memory(group_product<D>, kBytes);
  const dim3 grid(static_cast<unsigned>((args.w.n + kGroupTileWeights - 1) / kGroupTileWeights),
                  static_cast<unsigned>(n_tiles), static_cast<unsigned>(parts));
  launch(group_product<D>, grid, kGroupTileThreads, kBytes, stream, args, tiles);
}

}  // namespace ggml::cuda
