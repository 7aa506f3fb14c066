// What it costs to hand a layer's work from the GPU to the CPU and back inside one captured graph: 48 layers, each
// [GPU work] -> activation to host memory -> the CPU answers -> the GPU goes on.
//
//   host_node     a host function in the graph does the CPU's part
//   one_kernel    a kernel raises a counter in mapped memory and waits for the answer itself
//   two_kernels   a kernel raises, a one-block kernel waits
//   wait_node     a kernel raises, a memory-operation node of the graph waits
// The CPU's part is an answer without work, given by a thread that polls the counter.

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "support.cuh"

namespace tandem::bench {
namespace {

constexpr int kLayers = 48;
constexpr int kWidth = 2048;

/// Counters that both sides see. One cache line each.
struct Mailbox {
  alignas(128) volatile std::uint32_t asked;
  alignas(128) volatile std::uint32_t answered;
  alignas(128) float activation[kWidth];
};

/// Owned mapped pinned memory with a Mailbox.
class MappedMailbox {
 public:
  MappedMailbox() {
    CUDA_CHECK(cudaHostAlloc(reinterpret_cast<void**>(&host_), sizeof(Mailbox), cudaHostAllocMapped));
    CUDA_CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_), host_, 0));
    host_->asked = 0;
    host_->answered = 0;
  }
  MappedMailbox(const MappedMailbox&) = delete;
  MappedMailbox& operator=(const MappedMailbox&) = delete;
  ~MappedMailbox() { (void)cudaFreeHost(host_); }
  [[nodiscard]] Mailbox* host() const { return host_; }
  [[nodiscard]] Mailbox* device() const { return device_; }

 private:
  Mailbox* host_ = nullptr;
  Mailbox* device_ = nullptr;
};

__device__ void raise(Mailbox* box, std::uint32_t ticket) {
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) box->asked = ticket;
}
__device__ void await(Mailbox* box, std::uint32_t ticket) {
  if (threadIdx.x == 0) {
    while (static_cast<std::int32_t>(box->answered - ticket) < 0) {
    }
    __threadfence_system();
  }
  __syncthreads();
}
__device__ void send(Mailbox* box, const float* x) {
  for (int i = threadIdx.x; i < kWidth; i += blockDim.x) box->activation[i] = x[i];
}

// The step's first ticket lies in device memory, so that the same graph serves every replay.
__global__ void raise_kernel(Mailbox* box, const float* x, const std::uint32_t* base, int layer) {
  send(box, x);
  raise(box, *base + static_cast<std::uint32_t>(layer) + 1);
}
__global__ void wait_kernel(Mailbox* box, const std::uint32_t* base, int layer) {
  await(box, *base + static_cast<std::uint32_t>(layer) + 1);
}
__global__ void ask_kernel(Mailbox* box, const float* x, const std::uint32_t* base, int layer) {
  send(box, x);
  raise(box, *base + static_cast<std::uint32_t>(layer) + 1);
  await(box, *base + static_cast<std::uint32_t>(layer) + 1);
}
// For the wait node, whose compared value is fixed: tickets start at zero in every replay.
__global__ void raise_fixed_kernel(Mailbox* box, const float* x, int layer) {
  send(box, x);
  raise(box, static_cast<std::uint32_t>(layer) + 1);
}
__global__ void next_step_kernel(std::uint32_t* base) {
  *base += kLayers;
}
__global__ void work_kernel(float* x) {
  x[threadIdx.x] += 1.0f;
}

/// Answers every ticket at once, on a thread of its own, until it is destroyed.
class Answerer {
 public:
  explicit Answerer(Mailbox* box)
      : thread_([this, box] {
          std::uint32_t last = box->answered;
          while (!stop_.load(std::memory_order_relaxed)) {
            const std::uint32_t asked = box->asked;
            if (asked == last) continue;
            std::atomic_thread_fence(std::memory_order_acq_rel);
            last = asked;
            box->answered = asked;
          }
        }) {}
  Answerer(const Answerer&) = delete;
  Answerer& operator=(const Answerer&) = delete;
  ~Answerer() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void report(benchmark::State& state, Timeline& timeline, const Graph& graph, const auto& before_each) {
  before_each();
  graph.launch(timeline.stream());
  CUDA_CHECK(cudaStreamSynchronize(timeline.stream()));
  double seconds = 0;
  for (auto _ : state) {
    before_each();
    const double s = timeline.time([&](cudaStream_t stream) { graph.launch(stream); });
    state.SetIterationTime(s);
    seconds += s;
  }
  state.counters["us_per_layer"] = seconds / static_cast<double>(state.iterations()) / kLayers * 1e6;
}

/// The two small kernels of a layer without any hand-over, to subtract.
void no_handover(benchmark::State& state) {
  Timeline timeline;
  DeviceArray<float> x(std::vector<float>(kWidth, 1.0f));
  const Graph graph(timeline.stream(), [&](cudaStream_t stream) {
    for (int layer = 0; layer < kLayers; ++layer) launch(work_kernel, 1, 256, stream, false, x.get());
  });
  report(state, timeline, graph, [] {});
}

void host_node(benchmark::State& state) {
  Timeline timeline;
  MappedMailbox box;
  DeviceArray<float> x(std::vector<float>(kWidth, 1.0f));
  const Graph graph(timeline.stream(), [&](cudaStream_t stream) {
    for (int layer = 0; layer < kLayers; ++layer) {
      launch(work_kernel, 1, 256, stream, false, x.get());
      CUDA_CHECK(cudaLaunchHostFunc(
          stream, [](void* user) { static_cast<Mailbox*>(user)->answered = 1; }, box.host()));
    }
  });
  report(state, timeline, graph, [] {});
}

enum class Form { one_kernel, two_kernels };

template <Form kForm>
void kernels(benchmark::State& state) {
  Timeline timeline;
  MappedMailbox box;
  DeviceArray<float> x(std::vector<float>(kWidth, 1.0f));
  DeviceArray<std::uint32_t> base(std::vector<std::uint32_t>{0});
  const Answerer answerer(box.host());
  const Graph graph(timeline.stream(), [&](cudaStream_t stream) {
    for (int layer = 0; layer < kLayers; ++layer) {
      launch(work_kernel, 1, 256, stream, false, x.get());
      if constexpr (kForm == Form::one_kernel) {
        launch(ask_kernel, 1, 256, stream, false, box.device(), x.get(), base.get(), layer);
      } else {
        launch(raise_kernel, 1, 256, stream, false, box.device(), x.get(), base.get(), layer);
        launch(wait_kernel, 1, 32, stream, false, box.device(), base.get(), layer);
      }
    }
    launch(next_step_kernel, 1, 1, stream, false, base.get());
  });
  report(state, timeline, graph, [] {});
}

template <class... Args>
void add_kernel(cudaGraph_t graph, cudaGraphNode_t& last, void (*kernel)(Args...), unsigned threads, Args... args) {
  void* params[] = {&args...};
  cudaKernelNodeParams node{};
  node.func = reinterpret_cast<void*>(kernel);
  node.gridDim = 1;
  node.blockDim = threads;
  node.kernelParams = params;
  CUDA_CHECK(cudaGraphAddKernelNode(&last, graph, &last, last == nullptr ? 0 : 1, &node));
}

void wait_node(benchmark::State& state) {
  Timeline timeline;
  MappedMailbox box;
  DeviceArray<float> x(std::vector<float>(kWidth, 1.0f));
  const Answerer answerer(box.host());
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuGraphAddBatchMemOpNode", &entry, 12000, cudaEnableDefault, &found));
  const auto add_mem_op = reinterpret_cast<decltype(&cuGraphAddBatchMemOpNode)>(entry);
  CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &entry, 12000, cudaEnableDefault, &found));
  CUcontext context = nullptr;
  reinterpret_cast<decltype(&cuCtxGetCurrent)>(entry)(&context);

  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t last = nullptr;
  for (int layer = 0; layer < kLayers; ++layer) {
    add_kernel(graph, last, work_kernel, 256u, x.get());
    add_kernel(graph, last, raise_fixed_kernel, 256u, box.device(), static_cast<const float*>(x.get()), layer);
    CUstreamBatchMemOpParams op{};
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = reinterpret_cast<CUdeviceptr>(const_cast<std::uint32_t*>(&box.device()->answered));
    op.waitValue.value = static_cast<std::uint32_t>(layer) + 1;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
    params.ctx = context;
    params.count = 1;
    params.paramArray = &op;
    CUgraphNode node = nullptr;
    if (add_mem_op(&node, graph, &last, 1, &params) != CUDA_SUCCESS) {
      state.SkipWithError("this driver has no memory-operation nodes");
      (void)cudaGraphDestroy(graph);
      return;
    }
    last = node;
  }
  const Graph exec(graph);
  CUDA_CHECK(cudaGraphDestroy(graph));
  report(state, timeline, exec, [&] {
    box.host()->asked = 0;
    while (box.host()->answered != 0) {  // the answerer repeats what was asked
    }
  });
}

/// Launch of an empty graph and the wait for its end by the host: the other way to hand over.
void launch_and_synchronise(benchmark::State& state) {
  Timeline timeline;
  DeviceArray<float> x(std::vector<float>(kWidth, 1.0f));
  const Graph graph(timeline.stream(),
                    [&](cudaStream_t stream) { launch(work_kernel, 1, 256, stream, false, x.get()); });
  for (auto _ : state) {
    graph.launch(timeline.stream());
    CUDA_CHECK(cudaStreamSynchronize(timeline.stream()));
  }
}

BENCHMARK(no_handover)->UseManualTime();
BENCHMARK(host_node)->UseManualTime();
BENCHMARK(kernels<Form::one_kernel>)->Name("one_kernel")->UseManualTime();
BENCHMARK(kernels<Form::two_kernels>)->Name("two_kernels")->UseManualTime();
BENCHMARK(wait_node)->UseManualTime();
BENCHMARK(launch_and_synchronise)->UseRealTime();

}  // namespace
}  // namespace tandem::bench

BENCHMARK_MAIN();
