#pragma once

#include "cuda/kernels/decoder.cuh"
#include "cuda/kernels/device.cuh"
#include "cuda/kernels/rounding.cuh"
#include "cuda/kernels/row_norm.h"

// What products of a single row of activations share.
//
// A block asks for all of its weight rows at once, as soon as it knows which: bulk copies into its own memory need
// neither registers nor instructions of the threads, and on their way while the kernels before still work
// (cp.async.bulk and mbarrier, compute capability 9.0; older cards copy with the threads). The row of activations is
// kept in the block's memory, too; lanes take their units of it to registers and use them for all weight rows. So a
// weight costs one load of 16 bytes per 32 codes, and little more than one instruction.
namespace ggml::cuda {

inline constexpr int kStagedThreads = 512;
// Products go through their work twice. The first time they rehearse, before they wait for the kernel before, on
// whatever lies in memory and without leaving anything: a launch lasts some microseconds and most of its instructions
// run once or twice, so without it reading them (150 cycles for eight, when no cache has them) takes longer than all
// else. Only what has no consequences is rehearsed: bytes in the block's own memory, reads of memory that is there.

inline constexpr int kStagedWarps = kStagedThreads / kWarp;
inline constexpr int kStagedRows = 8;  // weight rows are copied in multiples of this: all planes stay aligned

/// Lanes that share a weight row.
constexpr int staged_lanes(int k) {
  return k / kUnit <= 32 ? 16 : 32;
}

// Copies of whole runs of memory that end at a barrier.

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/// Counts the bytes that have arrived. Every thread waits for it; before, the block synchronises after begin().
struct Arrival {
  unsigned long long word;

  /// By one thread: `bytes` are going to come.
  __device__ __forceinline__ void begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&word)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }
  __device__ __forceinline__ void expect(int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)), "r"(bytes)
                 : "memory");
#endif
  }
  /// By all threads of the block, once.
  __device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 900
    unsigned done = 0;
    while (done == 0) {
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(shared_address(&word))
                   : "memory");
    }
#else
    __syncthreads();
#endif
  }
};

#if __CUDA_ARCH__ >= 900
/// Copies bytes (a multiple of 16, aligned so) to the block's memory.
__device__ __forceinline__ void copy_bytes(std::uint8_t* to, const std::uint8_t* from, int bytes, Arrival& arrival) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(&arrival.word))
               : "memory");
}
#endif

/// Where the planes of `rows` rows lie in a block's memory.
template <class D>
__device__ __forceinline__ StagedPlanes staged_planes(const std::uint8_t* memory, int rows, int units) {
  StagedPlanes p;
  p.codes = memory;
  p.high = p.codes + rows * units * D::Codes_::kBytes;
  p.scales = p.high + rows * units * D::Codes_::kHighBytes;
  p.supers = p.scales + rows * units * D::Scales_::kBytes;
  return p;
}

#if __CUDA_ARCH__ >= 900
/// Requests one plane (codes, high, scales, supers) of rows [row, row + rows) of a stack of matrices.
template <class D>
__device__ __forceinline__ void request_plane(const PlanarWeight& w, int plane, std::int64_t row, int rows,
                                              std::uint8_t* memory, Arrival& arrival) {
  // Bytes of a row in the planes before this one and in its own.
  const int units = w.k / kUnit;
  const int codes = units * D::Codes_::kBytes, high = units * D::Codes_::kHighBytes,
            scales = units * D::Scales_::kBytes, supers = units / kUnitsPerSuper * D::Scales_::kSuperBytes;
  const int before = plane == 0 ? 0 : plane == 1 ? codes : plane == 2 ? codes + high : codes + high + scales;
  const int own = plane == 0 ? codes : plane == 1 ? high : plane == 2 ? scales : supers;
  const std::uint8_t* from = plane == 0 ? w.codes : plane == 1 ? w.high : plane == 2 ? w.scales : w.supers;
  if (own > 0) copy_bytes(memory + rows * before, from + row * own, rows * own, arrival);
}
#endif

/// Requests all planes of rows [row, row + rows); `arrival` expects their bytes. A warp (older cards: `threads`
/// threads) calls it, a lane per plane.
template <class D>
__device__ __forceinline__ void request_rows(const PlanarWeight& w, std::int64_t row, int rows, std::uint8_t* memory,
                                             Arrival& arrival, int thread, int threads) {
#if __CUDA_ARCH__ >= 900
  if (thread < 4) request_plane<D>(w, thread, row, rows, memory, arrival);
#else
  const int units = w.k / kUnit;
  const StagedPlanes p = staged_planes<D>(memory, rows, units);
  const std::int64_t first = row * units;
  const int n = rows * units;
  const auto copy = [&](const std::uint8_t* to, const std::uint8_t* from, std::int64_t at, int bytes) {
    for (int i = 16 * thread; i < bytes; i += 16 * threads) {
      *reinterpret_cast<uint4*>(memory + (to - memory) + i) = __ldcs(reinterpret_cast<const uint4*>(from + at + i));
    }
  };
  copy(p.codes, w.codes, first * D::Codes_::kBytes, n * D::Codes_::kBytes);
  copy(p.high, w.high, first * D::Codes_::kHighBytes, n * D::Codes_::kHighBytes);
  copy(p.scales, w.scales, first * D::Scales_::kBytes, n * D::Scales_::kBytes);
  copy(p.supers, w.supers, first / kUnitsPerSuper * D::Scales_::kSuperBytes,
       n / kUnitsPerSuper * D::Scales_::kSuperBytes);
#endif
}

/// A rounded row in the block's memory: codes in two planes (the first and the last 16 of each unit), so that lanes
/// with neighbouring units meet different banks; then scales, then sums of 16 values.
struct StagedInput {
  std::uint8_t* memory;
  int units;

  __device__ __forceinline__ std::uint8_t* codes(int unit, int half) const {
    return memory + (half * units + unit) * 16;
  }
  __device__ __forceinline__ float* scales() const { return reinterpret_cast<float*>(memory + 32 * units); }
  __device__ __forceinline__ float2* sums() const { return reinterpret_cast<float2*>(memory + 36 * units); }

  /// Eight rounded values of a lane that stand at `at` in the row.
  __device__ __forceinline__ void put(const RoundedLane& r, int at) const {
    if (at >= units * kUnit) return;
    *reinterpret_cast<uint2*>(codes(at / kUnit, at / 16 % 2) + at % 16) = r.codes;
    if (at % kUnit == 0) scales()[at / kUnit] = r.d;
    if (at % 16 == 0) reinterpret_cast<float*>(sums())[at / 16] = r.s;
  }
  /// All of row `row` from the card's memory, by all threads of the block.
  __device__ __forceinline__ void fill(const QuantisedRows& x, std::int64_t row) const {
    const auto* q = reinterpret_cast<const uint4*>(x.q) + row * units * 2;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * units; i += kStagedThreads) {
      *reinterpret_cast<uint4*>(codes(i / 2, i % 2)) = q[i];
    }
    for (int i = static_cast<int>(threadIdx.x); i < units; i += kStagedThreads) {
      scales()[i] = x.d[row * units + i];
      sums()[i] = reinterpret_cast<const float2*>(x.s)[row * units + i];
    }
  }
};
/// Bytes of a row of k values, with what its memory must be aligned to.
__host__ __device__ constexpr int staged_input_bytes(int k) {
  return (k / kUnit * 44 + 127) / 128 * 128;
}

/// The weights of a norm, read before the wait, and the normalised row as the block's threads hold it, eight values
/// each.
struct NormedRow {
  static_assert(kMostNormedValues == kStagedThreads * kLaneValues);
  float weight[kLaneValues];
  float v[kLaneValues];

  static __device__ __forceinline__ int at() { return static_cast<int>(threadIdx.x) * kLaneValues; }
  __device__ __forceinline__ void request_weights(const RowNorm& norm) {
    load_values(norm.weight, at(), norm.n, weight);
  }
  __device__ __forceinline__ void request_values(const RowNorm& norm) { load_values(norm.x, at(), norm.n, v); }
  /// Normalises and rounds the row. A block of 256 has the same codes whatever its values are multiplied by, so the sum
  /// of squares may come late: only its scale waits. All threads call it, and synchronise before the next call.
  __device__ __forceinline__ void round(const RowNorm& norm, ActType act, float* shared, const StagedInput& to) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kLaneValues; ++j) {
      squares += v[j] * v[j];
      v[j] *= weight[j];
    }
    squares = warp_sum(squares);
    if (threadIdx.x % kWarp == 0) shared[warp] = squares;
    const bool late = act == ActType::q8_k;
    if (!late) {
      const float inverse = inverse_of(norm, shared);
#pragma unroll
      for (int j = 0; j < kLaneValues; ++j) v[j] *= inverse;
    }
    RoundedLane r = round_values(act, v, at());
    if (late) {
      const float inverse = inverse_of(norm, shared);
      r.d *= inverse;
      r.s *= inverse;
    }
    to.put(r, at());
  }

 private:
  static __device__ __forceinline__ float inverse_of(const RowNorm& norm, const float* shared) {
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kStagedWarps; ++i) sum += shared[i];
    return rsqrtf(sum / static_cast<float>(norm.n) + norm.eps);
  }
};

/// Sum of products of unsigned with signed bytes.
__device__ __forceinline__ int dot_unsigned(unsigned a, int b, int sum) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}

/// A unit of activations in registers.
template <class D>
struct UnitInput {
  int q[8];
  float d;     // for nibbles a sixteenth of the scale, as their sums of products are sixteen times too large
  float2 s;    // sums of both halves; where a unit has one add, x: their sum
  int sum[2];  // of the codes of each half, times the center; for nibbles the first is sixteen times that of both

  __device__ __forceinline__ void load(const StagedInput& x, int unit) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 v = *reinterpret_cast<const uint4*>(x.codes(unit, half));
      q[4 * half] = static_cast<int>(v.x);
      q[4 * half + 1] = static_cast<int>(v.y);
      q[4 * half + 2] = static_cast<int>(v.z);
      q[4 * half + 3] = static_cast<int>(v.w);
    }
    d = x.scales()[unit];
    if constexpr (D::kNibbles) d *= 1.0f / 16;
    if constexpr (D::kAdds) {
      s = x.sums()[unit];
      if constexpr (!D::kHalves) s.x += s.y;
    }
    if constexpr (D::kCenter != 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[half] = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[half] = __dp4a(q[4 * half + i], 0x01010101 * D::kCenter, sum[half]);
      }
      if constexpr (D::kNibbles) sum[0] = 16 * (sum[0] + sum[1]);
    }
  }
};

/// The sum of products of codes; high nibbles stay where they are.
template <class D>
__device__ __forceinline__ int nibble_sum(const D& decoder, const UnitInput<D>& x) {
  const uint4& n = decoder.code_planes.nibbles;
  const unsigned v[4] = {n.x, n.y, n.z, n.w};
  int first = 0, second = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    first = __dp4a(static_cast<int>(v[i] & 0x0f0f0f0fu), x.q[i], first);
    second = dot_unsigned(v[i] & 0xf0f0f0f0u, x.q[4 + i], second);
  }
  second += 16 * first;
  if constexpr (D::kCenter != 0) second -= x.sum[0];
  return second;
}

/// A unit of weights times the same unit of activations.
template <class D>
__device__ __forceinline__ float staged_product(const D& decoder, const UnitInput<D>& x) {
  const Scales scales = decoder.scales();
  if constexpr (D::kNibbles) {
    const float sum = x.d * scales.scale[0] * static_cast<float>(nibble_sum(decoder, x));
    return D::kAdds ? sum + scales.add[0] * x.s.x : sum;
  }
  const Codes codes = decoder.raw_codes();
  int first = 0, second = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) first = __dp4a(codes.word[i], x.q[i], first);
#pragma unroll
  for (int i = 4; i < 8; ++i) second = __dp4a(codes.word[i], x.q[i], second);
  if constexpr (D::kCenter != 0) {
    first -= x.sum[0];
    second -= x.sum[1];
  }
  float sum;
  if constexpr (D::kHalves) {
    sum = x.d * (scales.scale[0] * static_cast<float>(first) + scales.scale[1] * static_cast<float>(second));
  } else {
    sum = x.d * scales.scale[0] * static_cast<float>(first + second);
  }
  if constexpr (D::kAdds) sum += D::kHalves ? scales.add[0] * x.s.x + scales.add[1] * x.s.y : scales.add[0] * x.s.x;
  return sum;
}

/// Some units of the row, as one of kLanes lanes has them: first, first + kLanes, ...
template <class D, int kLanes, int kLaneUnits = 2>
struct LaneInput {
  static constexpr int kAtOnce = kLanes * kLaneUnits;
  UnitInput<D> unit[kLaneUnits];

  /// Lanes beyond the end get zeros.
  __device__ __forceinline__ void load(const StagedInput& x, int first) {
#pragma unroll
    for (int i = 0; i < kLaneUnits; ++i) {
      unit[i] = {};
      if (first + i * kLanes < x.units) unit[i].load(x, first + i * kLanes);
    }
  }
  /// The part of the product with a staged row that these units give. Lanes beyond its end take the last unit, times
  /// zeros: without conditions all loads are under way at once.
  __device__ __forceinline__ float part(const StagedPlanes& w, int row, int units, int first) const {
    D decoder[kLaneUnits];
#pragma unroll
    for (int i = 0; i < kLaneUnits; ++i) {
      const auto at = static_cast<unsigned>(row * units + min(first + i * kLanes, units - 1));
      decoder[i].load(w, at, at / kUnitsPerSuper);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kLaneUnits; ++i) sum += staged_product(decoder[i], unit[i]);
    return sum;
  }
  /// The product with a staged row, in all lanes of the group; whole warps call it. Rows of more than kAtOnce units are
  /// read in pieces, shorter ones must have been loaded.
  __device__ __forceinline__ float times(const StagedInput& x, const StagedPlanes& w, int row, int lane) {
    float sum = 0;
#pragma unroll 1
    for (int first = lane; first - lane < x.units; first += kAtOnce) {
      if (x.units > kAtOnce) load(x, first);
      sum += part(w, row, x.units, first);
    }
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    return sum;
  }
};

}  // namespace ggml::cuda
