#include "cuda/kernels/fetch.h"

#include "cuda/kernels/device.cuh"
#include "cuda/kernels/launch.cuh"

namespace ggml::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 8;

/// A block per piece; each thread has several reads under way, for one over the bus takes microseconds. The kernel
/// after it may not start early, so what it copied is there for all later ones of the graph even before they wait.
__global__ void __launch_bounds__(kThreads) fetch(const __grid_constant__ FetchRanges ranges) {
  wait_for_previous();
  const FetchRange& r = ranges.range[blockIdx.x];
  for (int first = static_cast<int>(threadIdx.x); first < r.words; first += kAtOnce * kThreads) {
    std::uint32_t v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kThreads;
      v[i] = at < r.words ? r.from[at] : 0;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kThreads;
      if (at < r.words) r.to[at] = v[i];
    }
  }
  __threadfence();
}

}  // namespace

void launch_fetch(const FetchRanges& ranges, cudaStream_t stream) {
  launch(fetch, static_cast<unsigned>(ranges.n), kThreads, 0, stream, ranges);
}

}  // namespace ggml::cuda
