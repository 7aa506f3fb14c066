#include "cuda/kernels/rewrite.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "cuda/check.h"
#include "cuda/planes.h"

/// The file's blocks to planes, a thread per 32 weights. The result is that of write_planes() (planes.cpp), bit for
/// bit.
namespace ggml::cuda {
namespace {

constexpr int kThreads = 128;
constexpr unsigned kMostBlocks = 512;  // the products of the step at hand have a claim on the card, too

/// Words at an address of which only `kAlign` bytes are sure.
template <int kAlign, int kWords>
__device__ __forceinline__ void load(const std::uint8_t* from, std::uint32_t (&to)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if constexpr (kAlign >= 4) {
      to[i] = reinterpret_cast<const std::uint32_t*>(from)[i];
    } else if constexpr (kAlign == 2) {
      const auto* halves = reinterpret_cast<const std::uint16_t*>(from) + 2 * i;
      to[i] = halves[0] | static_cast<std::uint32_t>(halves[1]) << 16;
    } else {
      const std::uint8_t* b = from + 4 * i;
      to[i] = b[0] | static_cast<std::uint32_t>(b[1]) << 8 | static_cast<std::uint32_t>(b[2]) << 16 |
              static_cast<std::uint32_t>(b[3]) << 24;
    }
  }
}

__device__ __forceinline__ std::uint16_t half_bits(const std::uint8_t* p) {
  return *reinterpret_cast<const std::uint16_t*>(p);
}

/// Where the planes of one unit go.
struct Unit {
  std::uint32_t* codes;
  std::uint8_t* high;
  std::uint8_t* scales;
  std::uint8_t* supers;

  __device__ void put_nibbles(const std::uint32_t (&w)[4]) const {
    *reinterpret_cast<uint4*>(codes) = make_uint4(w[0], w[1], w[2], w[3]);
  }
  __device__ void put_scales(std::uint8_t first, std::uint8_t second) const {
    *reinterpret_cast<std::uint16_t*>(scales) = static_cast<std::uint16_t>(first | second << 8);
  }
  /// 16 nibbles of low halves, 16 of high ones: looked up, as bytes.
  __device__ void put_looked_up(const std::uint32_t (&w)[4], const std::int8_t* table) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        std::uint32_t word = 0;
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          const std::uint32_t nibble = w[i] >> (8 * b + 4 * half) & 15;
          word |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(table[nibble])) << 8 * b;
        }
        codes[4 * half + i] = word;
      }
    }
  }
  __device__ void put_wide_scale(float scale) const {
    *reinterpret_cast<float4*>(scales) = make_float4(scale, scale, 0.0f, 0.0f);
  }
};

/// The fifth bits of 32 codes in order, as the plane of high bits has them: bit 8 b + w is that of code 4 w + b.
__device__ __forceinline__ std::uint32_t spread_fifth(std::uint32_t bits) {
  std::uint32_t spread = 0;
#pragma unroll
  for (int j = 0; j < 32; ++j) spread |= (bits >> j & 1u) << (8 * (j % 4) + j / 4);
  return spread;
}

// One per type: bytes of a block, units in it, rewrite(block, unit in the block, where it goes).

template <int kBytes, int kHeader>
struct Nibbles {  // blocks of 32: halves, then codes as the plane has them
  static constexpr int kBlockBytes = kBytes, kUnits = 1;
  __device__ static void rewrite(const std::uint8_t* block, int /*unit*/, const Unit& to) {
    std::uint32_t w[4];
    load<2>(block + kHeader, w);
    to.put_nibbles(w);
    for (int i = 0; i < kHeader; i += 2) *reinterpret_cast<std::uint16_t*>(to.scales + i) = half_bits(block + i);
  }
};

template <int kBytes, int kHeader>
struct FiveBits {  // halves, a word of fifth bits, codes
  static constexpr int kBlockBytes = kBytes, kUnits = 1;
  __device__ static void rewrite(const std::uint8_t* block, int /*unit*/, const Unit& to) {
    std::uint32_t bits[1], w[4];
    load<2>(block + kHeader, bits);
    load<2>(block + kHeader + 4, w);
    to.put_nibbles(w);
    *reinterpret_cast<std::uint32_t*>(to.high) = spread_fifth(bits[0]);
    for (int i = 0; i < kHeader; i += 2) *reinterpret_cast<std::uint16_t*>(to.scales + i) = half_bits(block + i);
  }
};

struct Bytes {
  static constexpr int kBlockBytes = 34, kUnits = 1;
  __device__ static void rewrite(const std::uint8_t* block, int /*unit*/, const Unit& to) {
    std::uint32_t w[8];
    load<2>(block + 2, w);
#pragma unroll
    for (int i = 0; i < 8; ++i) to.codes[i] = w[i];
    *reinterpret_cast<std::uint16_t*>(to.scales) = half_bits(block);
  }
};

/// Eight 6-bit scales and minima in 12 bytes.
__device__ __forceinline__ void put_six_bit_scales(const std::uint8_t* s, int i, const Unit& to) {
  const int scale = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
  const int min = i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | (s[i] >> 6) << 4;
  to.put_scales(static_cast<std::uint8_t>(scale), static_cast<std::uint8_t>(min));
}

template <int kBytes, int kCodes, int kHigh>
struct FourBitSupers {  // blocks of 256 with 6-bit scales; kHigh > 0: where fifth bits are
  static constexpr int kBlockBytes = kBytes, kUnits = 8;
  __device__ static void rewrite(const std::uint8_t* block, int unit, const Unit& to) {
    std::uint32_t q[8], w[4];
    load<4>(block + kCodes + 32 * (unit / 2), q);
    const int shift = 4 * (unit % 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = (q[i] >> shift & 0x0f0f0f0f) | (q[i + 4] >> shift & 0x0f0f0f0f) << 4;
    to.put_nibbles(w);
    if constexpr (kHigh > 0) {
      std::uint32_t h[8], spread = 0;
      load<4>(block + kHigh, h);
#pragma unroll
      for (int i = 0; i < 8; ++i) spread |= (h[i] >> unit & 0x01010101) << i;
      *reinterpret_cast<std::uint32_t*>(to.high) = spread;
    }
    put_six_bit_scales(block + 4, unit, to);
    if (unit == 0) *reinterpret_cast<std::uint32_t*>(to.supers) = *reinterpret_cast<const std::uint32_t*>(block);
  }
};

struct SixBits {  // 128 bytes of low nibbles, 64 of high pairs, 16 scales, d
  static constexpr int kBlockBytes = 210, kUnits = 8;
  __device__ static void rewrite(const std::uint8_t* block, int unit, const Unit& to) {
    const int half = unit / 4, part = unit % 4;
    std::uint32_t q[8], h[8], w[4];
    load<2>(block + 64 * half + 32 * (part % 2), q);
    load<2>(block + 128 + 32 * half, h);
    const int shift = 4 * (part / 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = (q[i] >> shift & 0x0f0f0f0f) | (q[i + 4] >> shift & 0x0f0f0f0f) << 4;
    to.put_nibbles(w);
    std::uint32_t high[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i) high[i % 2] |= (h[i] >> 2 * part & 0x03030303) << 2 * (i / 2);
    *reinterpret_cast<uint2*>(to.high) = make_uint2(high[0], high[1]);
    to.put_scales(block[192 + 2 * unit], block[193 + 2 * unit]);
    if (unit == 0) *reinterpret_cast<std::uint16_t*>(to.supers) = half_bits(block + 208);
  }
};

__constant__ std::int8_t k_values4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
__constant__ std::int8_t k_fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct Iq4Nl {
  static constexpr int kBlockBytes = 18, kUnits = 1;
  __device__ static void rewrite(const std::uint8_t* block, int /*unit*/, const Unit& to) {
    std::uint32_t w[4];
    load<2>(block + 2, w);
    to.put_looked_up(w, k_values4);
    to.put_wide_scale(__half2float(__ushort_as_half(half_bits(block))));
  }
};

struct Iq4Xs {
  static constexpr int kBlockBytes = 136, kUnits = 8;
  __device__ static void rewrite(const std::uint8_t* block, int unit, const Unit& to) {
    std::uint32_t w[4];
    load<4>(block + 8 + 16 * unit, w);
    to.put_looked_up(w, k_values4);
    const int scale = (block[4 + unit / 2] >> 4 * (unit % 2) & 15) | (block[2 + unit / 4] >> 2 * (unit % 4) & 3) << 4;
    to.put_wide_scale(__half2float(__ushort_as_half(half_bits(block))) * static_cast<float>(scale - 32));
  }
};

struct Mxfp4 {
  static constexpr int kBlockBytes = 17, kUnits = 1;
  __device__ static void rewrite(const std::uint8_t* block, int /*unit*/, const Unit& to) {
    std::uint32_t w[4];
    load<1>(block + 1, w);
    to.put_looked_up(w, k_fp4);
    // Half of 2^(e - 127); the two smallest ones have no exponent of their own.
    const std::uint32_t e = block[0];
    to.put_wide_scale(__uint_as_float(e >= 2 ? (e - 1) << 23 : 0x00200000u << e));
  }
};

template <class Format>
__global__ void __launch_bounds__(kThreads) rewrite(const RewriteArgs a, PlaneBytes bytes) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < a.n_units; i += stride) {
    const std::int64_t at = a.first_unit + i;
    const Unit to{reinterpret_cast<std::uint32_t*>(a.codes + at * bytes.codes), a.high + at * bytes.high,
                  a.scales + at * bytes.scales, a.supers + at / kUnitsPerSuper * bytes.supers};
    Format::rewrite(a.blocks + i / Format::kUnits * Format::kBlockBytes, static_cast<int>(i % Format::kUnits), to);
  }
}

using Launch = void (*)(const RewriteArgs& args, const PlaneBytes& bytes, cudaStream_t stream);
template <class Format>
void launch(const RewriteArgs& args, const PlaneBytes& bytes, cudaStream_t stream) {
  const std::int64_t blocks = (args.n_units + kThreads - 1) / kThreads;
  const unsigned grid = blocks < kMostBlocks ? static_cast<unsigned>(blocks) : kMostBlocks;
  const auto kernel = rewrite<Format>;
  kernel<<<grid, kThreads, 0, stream>>>(args, bytes);
  CUDA_CHECK_LAUNCH("rewrite");
}

/// Of a type that takes 8-bit codes with wide scales.
Launch wide_launcher(DType type) {
  switch (type) {
    case DType::iq4_nl:
      return launch<Iq4Nl>;
    case DType::iq4_xs:
      return launch<Iq4Xs>;
    case DType::mxfp4:
      return launch<Mxfp4>;
    default:
      return nullptr;
  }
}

/// Types with planes of their own differ in these.
Launch launcher(DType type) {
  const PlaneSpec spec = plane_spec(type);
  const bool five = spec.code_bits == 5;
  switch (spec.form) {
    case ScaleForm::none:
      return nullptr;
    case ScaleForm::half:
      return spec.code_bits == 8 ? launch<Bytes> : five ? launch<FiveBits<22, 2>> : launch<Nibbles<18, 2>>;
    case ScaleForm::half_min:
      return five ? launch<FiveBits<24, 4>> : launch<Nibbles<20, 4>>;
    case ScaleForm::k_min:
      return five ? launch<FourBitSupers<176, 48, 16>> : launch<FourBitSupers<144, 16, 0>>;
    case ScaleForm::k_16:
      return launch<SixBits>;
    case ScaleForm::wide:
      break;
  }
  return wide_launcher(type);
}

}  // namespace

bool can_rewrite(DType type) noexcept {
  return launcher(type) != nullptr;
}

void launch_rewrite(DType type, const RewriteArgs& args, CUstream_st* stream) {
  launcher(type)(args, plane_bytes(plane_spec(type)), stream);
}

}  // namespace ggml::cuda
