#pragma once

#include <cuda_runtime_api.h>

/// The one way CUDA calls are made: a failed call becomes a DeviceError with the call's text.
namespace ggml::cuda {

/// Throws DeviceError: the call, the card in use, and what CUDA says about it.
[[noreturn]] void fail(cudaError_t status, const char* call);

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]]
    fail(status, call);
}

}  // namespace ggml::cuda

#define CUDA_CHECK(call) ::ggml::cuda::check((call), #call)
/// After a kernel launch: names the kernel.
#define CUDA_CHECK_LAUNCH(kernel) ::ggml::cuda::check(cudaGetLastError(), "launch of " kernel)
