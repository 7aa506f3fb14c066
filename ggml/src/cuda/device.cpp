#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/hand_over.h"
#include "cuda/pinned_pages.h"
#include "cuda/planes.h"
#include "cuda/program.h"
#include "cuda/upload.h"
#include "ggml/cuda.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml {
namespace {

using cuda::CudaBuffer;
using cuda::CudaProgram;
using cuda::DeviceScope;

constexpr int kOldestCapability = 75;  // Turing: dp4a, int8 tensor cores

/// Everything of a card that outlives its executors. The stream orders all work on it but copies of weights that are
/// sent ahead.
struct CardResources {
  int index;
  DeviceId id;
  int multiprocessors;
  cuda::Stream stream;
};

/// A point in a stream of a card that other streams, also of other cards, can wait for.
class RecordedEvent final : public Event {
 public:
  void wait() override { CUDA_CHECK(cudaEventSynchronize(marker_.get())); }
  [[nodiscard]] bool ready() override {
    const cudaError_t status = cudaEventQuery(marker_.get());
    if (status == cudaErrorNotReady) return false;
    cuda::check(status, "cudaEventQuery");
    return true;
  }
  [[nodiscard]] const cuda::Marker& marker() const { return marker_; }

 private:
  cuda::Marker marker_;
};

/// The streams of an executor for weights that are sent while the card works: one for the copies, one for what is done
/// with them then, which goes before the card's other work since it is short and makes room for more copies.
struct CopierStreams {
  cuda::Stream copies;
  cuda::Stream rewrites{cuda::Stream::Priority::high};
};

class CudaExecutor final : public Executor {
 public:
  explicit CudaExecutor(CardResources& card) : card_(card), copies_(card.stream.get()), stream_(card.stream.get()) {}
  CudaExecutor(CardResources& card, std::unique_ptr<CopierStreams> own)
      : card_(card), own_(std::move(own)), copies_(own_->copies.get()), stream_(own_->rewrites.get()) {}

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
    std::unique_ptr<Event> event = make_event();
    record(*event);
    return event;
  }

  void run(Program& program, const StepCounts& counts, const StopToken& stop) override {
    const DeviceScope scope(card_.index);
    static_cast<CudaProgram&>(program).run(stream_, counts, stop);
  }

  void synchronise() override {
    const DeviceScope scope(card_.index);
    CUDA_CHECK(cudaStreamSynchronize(copies_));
    CUDA_CHECK(cudaStreamSynchronize(stream_));
  }

  std::unique_ptr<Event> make_event() override {
    const DeviceScope scope(card_.index);
    return std::make_unique<RecordedEvent>();
  }

  void record(Event& event) override {
    const DeviceScope scope(card_.index);
    static_cast<RecordedEvent&>(event).marker().record(stream_);
  }

  void wait_for(Event& event) override {
    auto* recorded = dynamic_cast<RecordedEvent*>(&event);
    if (recorded == nullptr) return event.wait();
    const DeviceScope scope(card_.index);
    recorded->marker().hold(stream_);
  }

  std::unique_ptr<HandOver> make_hand_over() override {
    const DeviceScope scope(card_.index);
    auto hand_over = std::make_unique<cuda::CudaHandOver>(card_.index, stream_);
    if (hand_over->works()) return hand_over;
    logf(LogLevel::info, "CUDA%d: kernels cannot wait for the host here: results are handed over by copies and events",
         card_.index);
    return nullptr;
  }

  void copy(std::byte* dst, const std::byte* src, std::size_t bytes) override {
    const DeviceScope scope(card_.index);
    CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_));
  }

  void load_rows(const WeightRows& rows, std::byte* dst, std::byte* landing) override {
    const DeviceScope scope(card_.index);
    if (upload_ == nullptr) upload_ = std::make_unique<cuda::Upload>();
    upload_->rows(rows, dst, landing, copies_, stream_);
  }

 private:
  CardResources& card_;
  std::unique_ptr<CopierStreams> own_;    // null: the card's
  cudaStream_t copies_, stream_;          // of weights; of all else
  std::unique_ptr<cuda::Upload> upload_;  // once there are weights to load
};

class CudaDevice final : public Device {
 public:
  /// Device `number` of this process, one of `per_card` that a card gives.
  CudaDevice(int number, int index, int per_card, const cudaDeviceProp& properties)
      : name_(strf("CUDA%d", number)),
        description_(properties.name),
        per_card_(static_cast<std::size_t>(per_card)),
        details_(strf("compute capability %d.%d, VMM: %s", properties.major, properties.minor,
                      has_virtual_memory(index) ? "yes" : "no")),
        card_{index, DeviceId(number + 1), properties.multiProcessorCount, {}} {}

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] const std::string& description() const noexcept override { return description_; }
  [[nodiscard]] DeviceId id() const noexcept override { return card_.id; }
  void renumber(DeviceId id) override { card_.id = id; }
  [[nodiscard]] std::string details() const override { return details_; }

  [[nodiscard]] DeviceMemory memory() const override {
    const DeviceScope scope(card_.index);
    std::size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {total / per_card_, free / per_card_};
  }

  std::unique_ptr<Buffer> allocate(std::size_t bytes, BufferKind kind) override {
    // Host memory that belongs to a card's work is pinned, so that its kernels can read it in place.
    return std::make_unique<CudaBuffer>(card_.index, bytes,
                                        kind == BufferKind::device ? kind : BufferKind::host_pinned);
  }

  std::unique_ptr<Executor> make_executor() override { return std::make_unique<CudaExecutor>(card_); }
  std::unique_ptr<Executor> make_copier() override {
    const DeviceScope scope(card_.index);
    return std::make_unique<CudaExecutor>(card_, std::make_unique<CopierStreams>());
  }
  [[nodiscard]] bool streams_weights(DType type) const noexcept override { return cuda::can_upload(type); }
  [[nodiscard]] std::size_t landing_bytes() const noexcept override { return cuda::Upload::kLandingBytes; }
  std::unique_ptr<PinnedMemory> pin(std::span<const std::byte> memory) override {
    return cuda::pin_pages(card_.index, memory);
  }

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

  static bool has_virtual_memory(int index) {
    int supported = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, index));
    return supported != 0;
  }

  std::string name_;
  std::string description_;
  std::size_t per_card_;
  std::string details_;
  CardResources card_;
};

}  // namespace

CudaDevices find_cuda_devices(int per_card) {
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
      for (int part = 0; part < per_card; ++part)
        found.devices.push_back(std::make_unique<CudaDevice>(i * per_card + part, i, per_card, properties));
    } catch (const Error& error) {
      logf(LogLevel::warn, "CUDA%d: left out: %s", i, error.what());
    }
  }
  if (found.devices.empty()) found.problem = n == 0 ? "no NVIDIA card" : "no card that can be used";
  return found;
}

}  // namespace ggml
