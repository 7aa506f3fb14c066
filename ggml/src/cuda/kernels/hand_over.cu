#include "cuda/kernels/hand_over.h"

#include <cuda_runtime.h>

#include "cuda/check.h"

namespace ggml::cuda {
namespace {

constexpr int kThreads = 512;

template <class T>
__device__ __forceinline__ void copy_as(const HandOverCopy& c) {
  auto* to = reinterpret_cast<T*>(c.to);
  const auto* from = reinterpret_cast<const T*>(c.from);
  // Past the caches: the other side has just written it, or is about to read it.
  for (unsigned i = threadIdx.x; i < c.bytes / sizeof(T); i += kThreads) __stwt(to + i, __ldcv(from + i));
}

__device__ __forceinline__ void copy_all(const HandOverCopies& copies) {
  for (int n = 0; n < copies.n; ++n) {
    const HandOverCopy& c = copies.copy[n];
    const auto low_bits = reinterpret_cast<std::uintptr_t>(c.to) | reinterpret_cast<std::uintptr_t>(c.from) | c.bytes;
    if (low_bits % sizeof(uint4) == 0)
      copy_as<uint4>(c);
    else if (low_bits % sizeof(unsigned) == 0)
      copy_as<unsigned>(c);
    else
      copy_as<unsigned char>(c);
  }
}

__device__ __forceinline__ std::uint64_t now_ns() {
  std::uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

__global__ void __launch_bounds__(kThreads)
    give(const __grid_constant__ HandOverCopies copies, HandOverWords* words, std::uint32_t ticket) {
  copy_all(copies);
  if (ticket == 0) return;
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) words->given = ticket;
}

__global__ void __launch_bounds__(kThreads) take(const __grid_constant__ HandOverCopies copies, HandOverWords* words,
                                                 std::uint32_t number, std::uint64_t patience_ns) {
  if (threadIdx.x == 0) {
    const std::uint64_t begin = now_ns();
    while (static_cast<std::int32_t>(words->opened - number) < 0) {
      if (now_ns() - begin < patience_ns) continue;
      words->late = 1;
      break;
    }
    __threadfence_system();
  }
  __syncthreads();
  copy_all(copies);
}

}  // namespace

void launch_give(const HandOverCopies& copies, HandOverWords* words, std::uint32_t ticket, CUstream_st* stream) {
  give<<<1, kThreads, 0, stream>>>(copies, words, ticket);
  CUDA_CHECK_LAUNCH("give");
}

void launch_take(const HandOverCopies& copies, HandOverWords* words, std::uint32_t number, std::uint64_t patience_ns,
                 CUstream_st* stream) {
  take<<<1, kThreads, 0, stream>>>(copies, words, number, patience_ns);
  CUDA_CHECK_LAUNCH("take");
}

}  // namespace ggml::cuda
