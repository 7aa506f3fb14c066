#include "cuda/check.h"

#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml::cuda {

void fail(cudaError_t status, const char* call) {
  int device = -1;
  (void)cudaGetDevice(&device);
  (void)cudaGetLastError();  // a sticky error stays, others must not be reported twice
  const bool memory = status == cudaErrorMemoryAllocation;
  throw DeviceError(
      memory ? ErrorCode::out_of_memory : ErrorCode::device,
      strf("CUDA%d: %s failed: %s (%s)", device, call, cudaGetErrorString(status), cudaGetErrorName(status)),
      memory ? "free memory on the card or put fewer layers on it (-ngl)" : "");
}

}  // namespace ggml::cuda
