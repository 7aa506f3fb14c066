#pragma once

#include <cstdint>

/// Products of the tensor cores that the four warps of a group make together (compute capability 9.0, target 90a). They
/// run in the background: between begin_group_products() and wait_group_products() nobody touches their registers.
namespace ggml::cuda {

inline constexpr int kGroupRows = 64;  // of the first matrix, 16 to a warp
inline constexpr int kGroupThreads = 128;
inline constexpr int kSwizzledRow = 128;  // bytes of a row of the second matrix in shared memory
inline constexpr int kSwizzledRows = 8;   // rows after which the order of their pieces repeats

/// Where 16-byte piece `piece` of row `row` lies, from the start of a matrix that is aligned to 1024 bytes.
__device__ __forceinline__ int swizzled(int row, int piece) {
  return row * kSwizzledRow + (piece ^ row % kSwizzledRows) * 16;
}

/// What tells the tensor cores of such a matrix; 16 bytes further on in K are one more.
__device__ __forceinline__ std::uint64_t swizzled_matrix(unsigned shared) {
  constexpr std::uint64_t kOneByOne = 1, kGroupPitch = kSwizzledRow * kSwizzledRows / 16, kSwizzle128 = 1;
  return (shared & 0x3ffffu) >> 4 | kOneByOne << 16 | kGroupPitch << 32 | kSwizzle128 << 62;
}

/// Makes what this thread wrote to shared memory visible to the tensor cores, once a barrier follows.
__device__ __forceinline__ void publish_to_tensor_cores() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ __forceinline__ void begin_group_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void commit_group_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_group_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
/// Keeps values in their registers up to here.
template <class T, int kN>
__device__ __forceinline__ void hold(T (&values)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define GROUP_SUMS_16(c)                                                                                      \
  "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]), "+r"(c[8]), \
      "+r"(c[9]), "+r"(c[10]), "+r"(c[11]), "+r"(c[12]), "+r"(c[13]), "+r"(c[14]), "+r"(c[15])
#define GROUP_SUMS_32(c)                                                                                       \
  GROUP_SUMS_16(c), "+r"(c[16]), "+r"(c[17]), "+r"(c[18]), "+r"(c[19]), "+r"(c[20]), "+r"(c[21]), "+r"(c[22]), \
      "+r"(c[23]), "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]), "+r"(c[28]), "+r"(c[29]), "+r"(c[30]),  \
      "+r"(c[31])
#define GROUP_PRODUCT_32(type, c, a, b, add)                                                       \
  asm volatile(                                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"                                                 \
      "wgmma.mma_async.sync.aligned.m64n32k32.s32." type                                           \
      ".s8 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p;\n}" \
      : GROUP_SUMS_16(c)                                                                           \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b), "r"(add)                       \
      : "memory")
#define GROUP_PRODUCT_64(type, c, a, b, add)                                                                        \
  asm volatile(                                                                                                     \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                                  \
      "wgmma.mma_async.sync.aligned.m64n64k32.s32." type                                                            \
      ".s8 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27," \
      "%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p;\n}"                                                             \
      : GROUP_SUMS_32(c)                                                                                            \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b), "r"(add)                                        \
      : "memory")
#endif

/// c [64, kCols] = a [64, 32] b [32, kCols] with bytes, added to c where `add`. Of each 8 columns c has what a fragment
/// of 16 x 8 has (mma.cuh), a is such a fragment, both of the warp's 16 rows.
template <bool kSigned, int kSums>
__device__ __forceinline__ void multiply_group(int (&c)[kSums], const unsigned (&a)[4], std::uint64_t b, bool add) {
  static_assert(kSums == 16 || kSums == 32);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int adds = add ? 1 : 0;
  if constexpr (kSums == 16) {
    if constexpr (kSigned) {
      GROUP_PRODUCT_32("s8", c, a, b, adds);
    } else {
      GROUP_PRODUCT_32("u8", c, a, b, adds);
    }
  } else {
    if constexpr (kSigned) {
      GROUP_PRODUCT_64("s8", c, a, b, adds);
    } else {
      GROUP_PRODUCT_64("u8", c, a, b, adds);
    }
  }
#endif
}

}  // namespace ggml::cuda
