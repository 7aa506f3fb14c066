#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/kernels/plane_kinds.h"
#include "cuda/kernels/weights.h"

/// Reading weights from their planes, by bits per code and form of the scales. A unit is 32 weights of a row.
namespace ggml::cuda {

/// Where a decoder reads: weights of the card's memory are used once, so they should not push other data out of caches.
template <class T>
__device__ __forceinline__ T read(const PlanarWeight&, const T* p) {
  return __ldcs(p);
}
/// Planes of some rows in a block's memory (staged_rows.cuh).
struct StagedPlanes {
  const std::uint8_t* codes;
  const std::uint8_t* high;
  const std::uint8_t* scales;
  const std::uint8_t* supers;
};
template <class T>
__device__ __forceinline__ T read(const StagedPlanes&, const T* p) {
  return *p;
}

/// 32 codes as bytes: word w holds codes 4 w .. 4 w + 3.
struct Codes {
  int word[8];
};

/// Loads codes of kBits and turns them into signed bytes.
template <int kBits>
struct CodePlanes;

template <>
struct CodePlanes<8> {
  static constexpr int kBytes = 32, kHighBytes = 0;
  static constexpr bool kNibbles = false;
  uint4 low, high;
  template <class Planes, class Index>
  __device__ void load(const Planes& w, Index unit) {
    const uint4* p = reinterpret_cast<const uint4*>(w.codes) + 2 * unit;
    low = read(w, p);
    high = read(w, p + 1);
  }
  template <int kCenter>
  __device__ Codes codes() const {
    static_assert(kCenter == 0);
    return {{static_cast<int>(low.x), static_cast<int>(low.y), static_cast<int>(low.z), static_cast<int>(low.w),
             static_cast<int>(high.x), static_cast<int>(high.y), static_cast<int>(high.z), static_cast<int>(high.w)}};
  }
};

template <int kCenter>
__device__ __forceinline__ int centered(unsigned codes) {
  if constexpr (kCenter == 0) return static_cast<int>(codes);
  return static_cast<int>(__vsub4(codes, 0x01010101u * kCenter));
}

template <>
struct CodePlanes<4> {
  static constexpr int kBytes = 16, kHighBytes = 0;
  static constexpr bool kNibbles = true;
  uint4 nibbles;
  template <class Planes, class Index>
  __device__ void load(const Planes& w, Index unit) {
    nibbles = read(w, reinterpret_cast<const uint4*>(w.codes) + unit);
  }
  template <int kCenter>
  __device__ Codes codes() const {
    const unsigned v[4] = {nibbles.x, nibbles.y, nibbles.z, nibbles.w};
    Codes c;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c.word[i] = centered<kCenter>(v[i] & 0x0f0f0f0fu);
      c.word[4 + i] = centered<kCenter>((v[i] >> 4) & 0x0f0f0f0fu);
    }
    return c;
  }
};

template <>
struct CodePlanes<5> {
  static constexpr int kBytes = 16, kHighBytes = 4;
  static constexpr bool kNibbles = false;
  uint4 nibbles;
  unsigned bits;
  template <class Planes, class Index>
  __device__ void load(const Planes& w, Index unit) {
    nibbles = read(w, reinterpret_cast<const uint4*>(w.codes) + unit);
    bits = read(w, reinterpret_cast<const unsigned*>(w.high) + unit);
  }
  template <int kCenter>
  __device__ Codes codes() const {
    const unsigned v[4] = {nibbles.x, nibbles.y, nibbles.z, nibbles.w};
    Codes c;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c.word[i] = centered<kCenter>((v[i] & 0x0f0f0f0fu) | ((bits >> i & 0x01010101u) << 4));
      c.word[4 + i] = centered<kCenter>((v[i] >> 4 & 0x0f0f0f0fu) | ((bits >> (4 + i) & 0x01010101u) << 4));
    }
    return c;
  }
};

template <>
struct CodePlanes<6> {
  static constexpr int kBytes = 16, kHighBytes = 8;
  static constexpr bool kNibbles = false;
  uint4 nibbles;
  uint2 bits;
  template <class Planes, class Index>
  __device__ void load(const Planes& w, Index unit) {
    nibbles = read(w, reinterpret_cast<const uint4*>(w.codes) + unit);
    bits = read(w, reinterpret_cast<const uint2*>(w.high) + unit);
  }
  template <int kCenter>
  __device__ Codes codes() const {
    const unsigned v[4] = {nibbles.x, nibbles.y, nibbles.z, nibbles.w};
    const unsigned h[2] = {bits.x, bits.y};
    Codes c;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Codes 4 i .. 4 i + 3 lie in bytes of word i % 2, at the pair of bits i / 2; 16 further on two pairs higher.
      c.word[i] = centered<kCenter>((v[i] & 0x0f0f0f0fu) | ((h[i % 2] >> (2 * (i / 2)) & 0x03030303u) << 4));
      c.word[4 + i] =
          centered<kCenter>((v[i] >> 4 & 0x0f0f0f0fu) | ((h[i % 2] >> (2 * (i / 2 + 2)) & 0x03030303u) << 4));
    }
    return c;
  }
};

/// Scale and add of the two halves of a unit; equal where kHalves is false.
struct Scales {
  float scale[2];
  float add[2];
};

/// Of types with super blocks: whole numbers and the scale of the super block that multiplies them all.
struct WholeScales {
  int scale[2];
  float super;
  float add[2];
};

template <ScaleForm kForm>
struct ScalePlane;

template <>
struct ScalePlane<ScaleForm::half> {
  static constexpr bool kHalves = false, kAdds = false;
  static constexpr int kBytes = 2, kSuperBytes = 0;
  __half d;
  template <class Planes, class Index>
  __device__ void load(const Planes& w, Index unit, Index /*super*/) {
    d = reinterpret_cast<const __half*>(w.scales)[unit];
  }
  __device__ Scales scales() const { return {{__half2float(d), 0.0f}, {0.0f, 0.0f}}; }
};

template <>
struct ScalePlane<ScaleForm::half_min> {
  static constexpr bool kHalves = false, kAdds = true;
  static constexpr int kBytes = 4, kSuperBytes = 0;
  __half2 d;
  template <class Planes, class Index>
  __device__ void load(const Planes& w, Index unit, Index /*super*/) {
    d = reinterpret_cast<const __half2*>(w.scales)[unit];
  }
  __device__ Scales scales() const { return {{__low2float(d), 0.0f}, {__high2float(d), 0.0f}}; }
};

template <>
struct ScalePlane<ScaleForm::k_min> {
  static constexpr bool kHalves = false, kAdds = true;
  static constexpr int kBytes = 2, kSuperBytes = 4;
  std::uint16_t s;
  __half2 d;
  template <class Planes, class Index>
  __device__ void load(const Planes& w, Index unit, Index super) {
    s = reinterpret_cast<const std::uint16_t*>(w.scales)[unit];
    d = reinterpret_cast<const __half2*>(w.supers)[super];
  }
  __device__ Scales scales() const {
    return {{__low2float(d) * static_cast<float>(s & 255), 0.0f},
            {-__high2float(d) * static_cast<float>(s >> 8), 0.0f}};
  }
  __device__ WholeScales whole_scales() const {
    return {{s & 255, 0}, __low2float(d), {-__high2float(d) * static_cast<float>(s >> 8), 0.0f}};
  }
};

template <>
struct ScalePlane<ScaleForm::k_16> {
  static constexpr bool kHalves = true, kAdds = false;
  static constexpr int kBytes = 2, kSuperBytes = 2;
  std::uint16_t s;
  __half d;
  template <class Planes, class Index>
  __device__ void load(const Planes& w, Index unit, Index super) {
    s = reinterpret_cast<const std::uint16_t*>(w.scales)[unit];
    d = reinterpret_cast<const __half*>(w.supers)[super];
  }
  __device__ Scales scales() const {
    const float f = __half2float(d);
    return {{f * static_cast<float>(static_cast<std::int8_t>(s & 255)),
             f * static_cast<float>(static_cast<std::int8_t>(s >> 8))},
            {0.0f, 0.0f}};
  }
  __device__ WholeScales whole_scales() const {
    return {{static_cast<std::int8_t>(s & 255), static_cast<std::int8_t>(s >> 8)}, __half2float(d), {0.0f, 0.0f}};
  }
};

template <>
struct ScalePlane<ScaleForm::wide> {
  static constexpr bool kHalves = true, kAdds = true;
  static constexpr int kBytes = 16, kSuperBytes = 0;
  float4 v;
  template <class Planes, class Index>
  __device__ void load(const Planes& w, Index unit, Index /*super*/) {
    v = read(w, reinterpret_cast<const float4*>(w.scales) + unit);
  }
  __device__ Scales scales() const { return {{v.x, v.y}, {v.z, v.w}}; }
};

/// A kind of planes as the kernels see it.
template <int kBits, ScaleForm kForm, int kCenter_>
struct Decoder {
  using Codes_ = CodePlanes<kBits>;
  using Scales_ = ScalePlane<kForm>;
  static constexpr bool kHalves = Scales_::kHalves, kAdds = Scales_::kAdds;
  static constexpr int kCenter = kCenter_;
  static constexpr bool kNibbles = Codes_::kNibbles;  // of two codes each, and nothing else
  static_assert(!(kNibbles && kHalves));
  /// Blocks of 256 weights; the activations they meet have one scale for as many values.
  static constexpr bool kSupers = kForm == ScaleForm::k_min || kForm == ScaleForm::k_16;

  Codes_ code_planes;
  Scales_ scale_plane;
  __device__ void load(const PlanarWeight& w, std::int64_t unit) {
    code_planes.load(w, unit);
    scale_plane.load(w, unit, unit / kUnitsPerSuper);
  }
  __device__ void load(const StagedPlanes& w, unsigned unit, unsigned super) {
    code_planes.load(w, unit);
    scale_plane.load(w, unit, super);
  }
  /// Bytes of `units` units of a row, whose number is a multiple of kUnitsPerSuper where there are supers.
  __host__ __device__ static constexpr int row_bytes(int units) {
    return units * (Codes_::kBytes + Codes_::kHighBytes + Scales_::kBytes) +
           units / kUnitsPerSuper * Scales_::kSuperBytes;
  }
  __device__ Codes codes() const { return code_planes.template codes<kCenter>(); }
  /// Without the center, which the product can take off as a whole.
  __device__ Codes raw_codes() const { return code_planes.template codes<0>(); }
  __device__ Scales scales() const { return scale_plane.scales(); }
  __device__ WholeScales whole_scales() const requires kSupers { return scale_plane.whole_scales(); }
};

/// Calls f.template operator()<D>() with the decoder of a kind; on the card the kind is the same for the whole block.
#pragma nv_exec_check_disable
template <class F>
__host__ __device__ __forceinline__ void with_decoder(PlaneKind kind, F&& f) {
  switch (kind) {
#define KIND(bits, form, center)        \
  case PlaneKind::bits_##bits##_##form: \
    return f.template operator()<Decoder<bits, ScaleForm::form, center>>();
    GGML_CUDA_PLANE_KINDS(KIND)
#undef KIND
  }
}

}  // namespace ggml::cuda
