// What one more kernel in a captured graph costs: chains of dependent kernels, with and without programmatic dependent
// launch, with nothing to do, with a reduction over an activation, and with weights to read.
//
// The decode of a token is such a chain, so the figures bound the number of kernels that a layer may have.

#include "support.cuh"

namespace tandem::bench {
namespace {

constexpr int kKernels = 384;  // 48 layers of 8
constexpr int kWidth = 2048;   // an activation

/// Every block adds one to its value.
__global__ void step_kernel(float* x) {
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) x[blockIdx.x] += 1.0f;
}

/// Sum of a warp's values, in every lane.
__device__ float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

__device__ float block_sum(float v) {
  __shared__ float partial[32];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : 0.0f;
  return warp_sum(v);
}

/// Every block reduces the whole activation and writes its part of the next one, as a projection with the norm in its
/// prologue does.
__global__ void reduce_kernel(const float* src, float* dst) {
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
  float sum = 0;
  for (int i = threadIdx.x; i < kWidth; i += blockDim.x) sum += src[i] * src[i];
  const float scale = rsqrtf(block_sum(sum) / kWidth + 1e-6f);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kWidth; i += gridDim.x * blockDim.x) dst[i] = src[i] * scale;
}

enum class Loads { after_wait, before_wait };

/// Reads `n` words of 16 bytes; the first round of loads may be issued before the predecessor's result is needed.
template <Loads kLoads>
__global__ void read_kernel(const uint4* weights, std::size_t n, const float* src, float* dst) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  constexpr int kAhead = 4;
  uint4 ahead[kAhead] = {};
  auto load = [&](std::size_t base) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::size_t at = base + static_cast<std::size_t>(i) * stride;
      ahead[i] = at < n ? __ldcs(weights + at) : uint4{};
    }
  };
  if constexpr (kLoads == Loads::before_wait) load(first);
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
  unsigned bits = 0;
  std::size_t base = first;
  if constexpr (kLoads == Loads::after_wait) load(base);
  while (base < n) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) bits ^= ahead[i].x ^ ahead[i].y ^ ahead[i].z ^ ahead[i].w;
    base += kAhead * stride;
    if (base < n) load(base);
  }
  const float sum = block_sum(static_cast<float>(bits & 1));
  if (threadIdx.x == 0) dst[blockIdx.x % kWidth] = src[blockIdx.x % kWidth] + sum;
}

void report(benchmark::State& state, Timeline& timeline, const Graph& graph, double bytes_per_kernel) {
  graph.launch(timeline.stream());
  double seconds = 0;
  for (auto _ : state) {
    const double s = timeline.time([&](cudaStream_t stream) { graph.launch(stream); });
    state.SetIterationTime(s);
    seconds += s;
  }
  const double per_kernel = seconds / static_cast<double>(state.iterations()) / kKernels;
  state.counters["us_per_kernel"] = per_kernel * 1e6;
  if (bytes_per_kernel > 0) state.counters["GB/s"] = bytes_per_kernel / per_kernel * 1e-9;
}

void nothing(benchmark::State& state) {
  Timeline timeline;
  DeviceArray<float> x(std::vector<float>(kWidth, 0.0f));
  const bool early = state.range(0) != 0;
  const Graph graph(timeline.stream(), [&](cudaStream_t stream) {
    for (int i = 0; i < kKernels; ++i) launch(step_kernel, multiprocessors(), 256, stream, early, x.get());
  });
  report(state, timeline, graph, 0);
}

void reduction(benchmark::State& state) {
  Timeline timeline;
  DeviceArray<float> a(std::vector<float>(kWidth, 0.5f)), b(std::vector<float>(kWidth, 0.5f));
  const bool early = state.range(0) != 0;
  const Graph graph(timeline.stream(), [&](cudaStream_t stream) {
    for (int i = 0; i < kKernels; ++i) {
      launch(reduce_kernel, multiprocessors(), 256, stream, early, i % 2 ? b.get() : a.get(),
             i % 2 ? a.get() : b.get());
    }
  });
  report(state, timeline, graph, 0);
}

/// Range: bytes in units of 100 kB, early launch, loads before the wait, blocks per multiprocessor.
void reading(benchmark::State& state) {
  Timeline timeline;
  const auto bytes = static_cast<std::size_t>(state.range(0)) * 100'000 / 16 * 16;
  const bool early = state.range(1) != 0, before = state.range(2) != 0;
  const int blocks = multiprocessors() * static_cast<int>(state.range(3));
  constexpr std::size_t kPool = std::size_t{2} << 30;  // many times the cache
  DeviceArray<std::byte> pool(kPool);
  CUDA_CHECK(cudaMemset(pool.get(), 0x5a, kPool));
  DeviceArray<float> a(std::vector<float>(kWidth, 0.0f)), b(std::vector<float>(kWidth, 0.0f));
  const std::size_t places = kPool / bytes;
  const Graph graph(timeline.stream(), [&](cudaStream_t stream) {
    for (int i = 0; i < kKernels; ++i) {
      const auto* weights = reinterpret_cast<const uint4*>(pool.get() + static_cast<std::size_t>(i) % places * bytes);
      launch(before ? read_kernel<Loads::before_wait> : read_kernel<Loads::after_wait>, blocks, 256, stream, early,
             weights, bytes / 16, i % 2 ? b.get() : a.get(), i % 2 ? a.get() : b.get());
    }
  });
  report(state, timeline, graph, static_cast<double>(bytes));
}

BENCHMARK(nothing)->ArgName("early")->Arg(0)->Arg(1)->UseManualTime();
BENCHMARK(reduction)->ArgName("early")->Arg(0)->Arg(1)->UseManualTime();
BENCHMARK(reading)
    ->ArgNames({"100kB", "early", "before", "blocks"})
    ->ArgsProduct({{11, 47, 142, 350}, {0}, {0}, {2, 4, 8}})
    ->ArgsProduct({{11, 47, 142, 350}, {1}, {0, 1}, {2, 4, 8}})
    ->UseManualTime();

}  // namespace
}  // namespace tandem::bench

BENCHMARK_MAIN();
