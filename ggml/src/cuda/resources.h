#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "cuda/check.h"
#include "ggml/device.h"

/// Owned CUDA objects, move-only. Destructors never throw and do nothing on a lost context.
namespace ggml::cuda {

/// Makes a card the calling thread's current one for the scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    CUDA_CHECK(cudaGetDevice(&before_));
    if (device != before_) CUDA_CHECK(cudaSetDevice(device));
  }
  ~DeviceScope() { (void)cudaSetDevice(before_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
};

class Stream {
 public:
  enum class Priority { usual, high };
  Stream() : Stream(Priority::usual) {}
  explicit Stream(Priority priority) {
    int lowest = 0, highest = 0;
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    CUDA_CHECK(cudaStreamCreateWithPriority(&s_, cudaStreamNonBlocking, priority == Priority::high ? highest : lowest));
  }
  ~Stream() {
    if (s_ != nullptr) (void)cudaStreamDestroy(s_);
  }
  Stream(Stream&& o) noexcept : s_(std::exchange(o.s_, nullptr)) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Stream& operator=(Stream&&) = delete;
  [[nodiscard]] cudaStream_t get() const noexcept { return s_; }

 private:
  cudaStream_t s_ = nullptr;
};

/// A point in a stream. Ready until it is recorded.
class Marker {
 public:
  Marker() { CUDA_CHECK(cudaEventCreateWithFlags(&e_, cudaEventDisableTiming)); }
  ~Marker() { (void)cudaEventDestroy(e_); }
  Marker(const Marker&) = delete;
  Marker& operator=(const Marker&) = delete;
  void record(cudaStream_t stream) const { CUDA_CHECK(cudaEventRecord(e_, stream)); }
  /// What `stream` is given later begins when the point is reached.
  void hold(cudaStream_t stream) const { CUDA_CHECK(cudaStreamWaitEvent(stream, e_, 0)); }
  [[nodiscard]] cudaEvent_t get() const noexcept { return e_; }

 private:
  cudaEvent_t e_ = nullptr;
};

/// A captured and instantiated graph; empty until capture.
class GraphExec {
 public:
  GraphExec() = default;
  explicit GraphExec(cudaGraph_t graph) { CUDA_CHECK(cudaGraphInstantiate(&g_, graph, 0)); }
  ~GraphExec() {
    if (g_ != nullptr) (void)cudaGraphExecDestroy(g_);
  }
  GraphExec(GraphExec&& o) noexcept : g_(std::exchange(o.g_, nullptr)) {}
  GraphExec& operator=(GraphExec&& o) noexcept {
    std::swap(g_, o.g_);
    return *this;
  }
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return g_ != nullptr; }
  [[nodiscard]] cudaGraphExec_t get() const noexcept { return g_; }

 private:
  cudaGraphExec_t g_ = nullptr;
};

/// Memory of a card (kind device) or host memory that the card reads and writes in place (kind host_pinned).
class CudaBuffer final : public Buffer {
 public:
  /// Throws DeviceError with device, bytes wanted and free.
  CudaBuffer(int device, std::size_t bytes, BufferKind kind);
  ~CudaBuffer() override;
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  /// Kind device: an address of the card, which the host must not read through.
  [[nodiscard]] std::byte* data() noexcept override { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] BufferKind kind() const noexcept override { return kind_; }

 private:
  int device_;
  std::size_t bytes_;
  BufferKind kind_;
  std::byte* data_ = nullptr;
};

}  // namespace ggml::cuda
