#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/planes.h"
#include "cuda/program.h"
#include "ggml/cuda.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml {
namespace {

using cuda::CudaBuffer;
using cuda::CudaProgram;
using cuda::DeviceScope;

constexpr int kOldestCapability = 75;  // Turing: dp4a, int8 tensor cores

/// Everything of a card that outlives its executors. The stream orders all work on it.
struct CardResources {
  int index;
  DeviceId id;
  int multiprocessors;
  cuda::Stream stream;
};

class StreamEvent final : public Event {
 public:
  explicit StreamEvent(const CardResources& card) : card_(card) {}
  void wait() override {
    const DeviceScope scope(card_.index);
    CUDA_CHECK(cudaStreamSynchronize(card_.stream.get()));
  }
  [[nodiscard]] bool ready() override {
    const DeviceScope scope(card_.index);
    const cudaError_t status = cudaStreamQuery(card_.stream.get());
    if (status == cudaErrorNotReady) return false;
    cuda::check(status, "cudaStreamQuery");
    return true;
  }

 private:
  const CardResources& card_;
};

/// A point in a card's stream that streams of other cards can wait for.
class RecordedEvent final : public Event {
 public:
  explicit RecordedEvent(const CardResources& card) : card_(card) {
    const DeviceScope scope(card_.index);
    CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  ~RecordedEvent() override { (void)cudaEventDestroy(event_); }
  RecordedEvent(const RecordedEvent&) = delete;
  RecordedEvent& operator=(const RecordedEvent&) = delete;

  void wait() override { CUDA_CHECK(cudaEventSynchronize(event_)); }
  [[nodiscard]] bool ready() override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    cuda::check(status, "cudaEventQuery");
    return true;
  }
  void record() { CUDA_CHECK(cudaEventRecord(event_, card_.stream.get())); }
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  const CardResources& card_;
  cudaEvent_t event_ = nullptr;
};

class CudaExecutor final : public Executor {
 public:
  explicit CudaExecutor(CardResources& card) : card_(card) {}

  [[nodiscard]] bool runs(const Graph& graph, const Node& node) const override {
    return cuda::declines(graph, node) == nullptr;
  }

  [[nodiscard]] std::size_t arena_bytes(const Graph& graph, const CompileOptions& options) override {
    const DeviceScope scope(card_.index);
    std::vector<std::size_t> offsets;
    return cuda::plan(cuda::lower(graph, options), card_.multiprocessors, offsets).arena_bytes;
  }

  std::unique_ptr<Program> compile(const Graph& graph, std::span<const PortBinding> ports, Buffer& arena,
                                   const CompileOptions& options) override {
    const DeviceScope scope(card_.index);
    return std::make_unique<CudaProgram>(
        cuda::lower(graph, options),
        cuda::CudaProgramInputs{card_.index, card_.multiprocessors, card_.id, ports, arena, options.observer});
  }

  std::unique_ptr<Event> submit(Program& program, const StepCounts& counts, const StopToken& stop) override {
    run(program, counts, stop);
    return std::make_unique<StreamEvent>(card_);
  }

  void run(Program& program, const StepCounts& counts, const StopToken& stop) override {
    const DeviceScope scope(card_.index);
    static_cast<CudaProgram&>(program).run(card_.stream.get(), counts, stop);
  }

  void synchronise() override {
    const DeviceScope scope(card_.index);
    CUDA_CHECK(cudaStreamSynchronize(card_.stream.get()));
  }

  std::unique_ptr<Event> make_event() override { return std::make_unique<RecordedEvent>(card_); }

  void record(Event& event) override {
    const DeviceScope scope(card_.index);
    static_cast<RecordedEvent&>(event).record();
  }

  void wait_for(Event& event) override {
    auto* recorded = dynamic_cast<RecordedEvent*>(&event);
    if (recorded == nullptr) return event.wait();
    const DeviceScope scope(card_.index);
    CUDA_CHECK(cudaStreamWaitEvent(card_.stream.get(), recorded->get(), 0));
  }

  void copy(std::byte* dst, const std::byte* src, std::size_t bytes) override {
    const DeviceScope scope(card_.index);
    CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, card_.stream.get()));
  }

 private:
  CardResources& card_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp& properties)
      : name_(strf("CUDA%d", index)),
        description_(properties.name),
        details_(strf("compute capability %d.%d, VMM: %s", properties.major, properties.minor,
                      has_virtual_memory(index) ? "yes" : "no")),
        card_{index, DeviceId(index + 1), properties.multiProcessorCount, {}} {}

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] const std::string& description() const noexcept override { return description_; }
  [[nodiscard]] DeviceId id() const noexcept override { return card_.id; }
  void renumber(DeviceId id) override { card_.id = id; }
  [[nodiscard]] std::string details() const override { return details_; }

  [[nodiscard]] DeviceMemory memory() const override {
    const DeviceScope scope(card_.index);
    std::size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {total, free};
  }

  std::unique_ptr<Buffer> allocate(std::size_t bytes, BufferKind kind) override {
    // Host memory that belongs to a card's work is pinned, so that its kernels can read it in place.
    return std::make_unique<CudaBuffer>(card_.index, bytes,
                                        kind == BufferKind::device ? kind : BufferKind::host_pinned);
  }

  std::unique_ptr<Executor> make_executor() override { return std::make_unique<CudaExecutor>(card_); }

  [[nodiscard]] bool supports(Op op) const noexcept override { return cuda::implementation(op) != nullptr; }
  [[nodiscard]] bool supports_cache(DType type) const noexcept override { return cuda::has_cache_kernels(type); }

  [[nodiscard]] std::size_t weight_bytes(DType type, const Shape& shape) const noexcept override {
    return cuda::plane_offsets(type, shape).total;
  }

  void load_weight(DType type, const Shape& shape, const std::byte* src, std::byte* dst) override {
    const DeviceScope scope(card_.index);
    std::vector<std::byte> planes(cuda::plane_offsets(type, shape).total);
    write_in_parallel(type, shape, src, planes.data());
    CUDA_CHECK(cudaMemcpy(dst, planes.data(), planes.size(), cudaMemcpyHostToDevice));
  }

  [[nodiscard]] bool memory_is_host() const noexcept override { return false; }

  void clear(std::byte* dst, std::size_t bytes) override {
    const DeviceScope scope(card_.index);
    CUDA_CHECK(cudaMemsetAsync(dst, 0, bytes, card_.stream.get()));
  }

  void copy(std::byte* dst, const std::byte* src, std::size_t bytes) override {
    const DeviceScope scope(card_.index);
    CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, card_.stream.get()));
    CUDA_CHECK(cudaStreamSynchronize(card_.stream.get()));
  }

 private:
  static void write_in_parallel(DType type, const Shape& shape, const std::byte* src, std::byte* dst) {
    constexpr std::int64_t kRowsPerPart = 512;
    const std::int64_t rows = shape.rows();
    const auto parts =
        std::clamp<std::int64_t>(rows / kRowsPerPart, 1, std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::thread> threads;
    for (std::int64_t i = 1; i < parts; ++i) {
      threads.emplace_back(
          [=] { cuda::write_planes(type, shape, src, rows * i / parts, rows * (i + 1) / parts, dst); });
    }
    cuda::write_planes(type, shape, src, 0, rows / parts, dst);
    for (std::thread& thread : threads) thread.join();
  }

  std::string name_;
  static bool has_virtual_memory(int index) {
    int supported = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, index));
    return supported != 0;
  }

  std::string description_;
  std::string details_;
  CardResources card_;
};

}  // namespace

CudaDevices find_cuda_devices() {
  CudaDevices found;
  int n = 0;
  const cudaError_t status = cudaGetDeviceCount(&n);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    found.problem = status == cudaErrorInsufficientDriver
                        ? "the NVIDIA driver is missing or older than this build's CUDA"
                        : strf("CUDA cannot be used: %s", cudaGetErrorString(status));
    return found;
  }
  for (int i = 0; i < n; ++i) {
    try {
      cudaDeviceProp properties{};
      CUDA_CHECK(cudaGetDeviceProperties(&properties, i));
      const int capability = properties.major * 10 + properties.minor;
      if (capability < kOldestCapability) {
        logf(LogLevel::warn, "CUDA%d: %s has compute capability %d.%d, 7.5 is the oldest that is used: left out", i,
             properties.name, properties.major, properties.minor);
        continue;
      }
      const DeviceScope scope(i);
      found.devices.push_back(std::make_unique<CudaDevice>(i, properties));
    } catch (const Error& error) {
      logf(LogLevel::warn, "CUDA%d: left out: %s", i, error.what());
    }
  }
  if (found.devices.empty()) found.problem = n == 0 ? "no NVIDIA card" : "no card that can be used";
  return found;
}

}  // namespace ggml
