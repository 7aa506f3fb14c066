#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/hand_over.h"
#include "cuda/resources.h"
#include "ggml/device.h"

namespace ggml::cuda {

/// Hands over by kernels of one block that copy, raise a number in host memory, or wait for one there.
class CudaHandOver final : public HandOver {
 public:
  /// `stream` is borrowed.
  CudaHandOver(int device, cudaStream_t stream);
  ~CudaHandOver() override;
  CudaHandOver(const CudaHandOver&) = delete;
  CudaHandOver& operator=(const CudaHandOver&) = delete;

  /// Whether kernels can wait for the host: not where the system ends long ones, nor where a debugger or a setting lets
  /// the host wait for each launch. Call it first: it also loads the kernels, which must not happen while one waits.
  [[nodiscard]] bool works();

  Ticket give(std::span<const HostCopy> copies) override;
  void await(Ticket ticket) override;
  void take(std::span<const HostCopy> copies) override;
  void open() noexcept override;

 private:
  int device_;
  cudaStream_t stream_;
  CudaBuffer memory_;
  HandOverWords* words_;
  Ticket given_ = 0;
  std::uint32_t taken_ = 0;
};

}  // namespace ggml::cuda
