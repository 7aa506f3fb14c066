#include "cuda/resources.h"

#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml::cuda {

CudaBuffer::CudaBuffer(int device, std::size_t bytes, BufferKind kind) : device_(device), bytes_(bytes), kind_(kind) {
  if (bytes == 0) return;
  const DeviceScope scope(device);
  void* p = nullptr;
  const cudaError_t status = kind == BufferKind::device
                                 ? cudaMalloc(&p, bytes)
                                 : cudaHostAlloc(&p, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    std::size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    if (kind == BufferKind::device) {
      throw DeviceError(ErrorCode::out_of_memory,
                        strf("CUDA%d: cannot allocate %zu bytes, %zu of %zu are free", device, bytes, free, total),
                        "put fewer layers on the card (-ngl), or use a smaller context (-c), batch (-ub) or KV type "
                        "(-ctk, -ctv)");
    }
    throw DeviceError(ErrorCode::out_of_memory,
                      strf("CUDA%d: the system gives no %zu bytes of pinned host memory", device, bytes),
                      "raise the limit on locked memory (ulimit -l) or use a smaller batch (-ub)");
  }
  check(status, kind == BufferKind::device ? "cudaMalloc" : "cudaHostAlloc");
  data_ = static_cast<std::byte*>(p);
}

CudaBuffer::~CudaBuffer() {
  if (data_ == nullptr) return;
  if (kind_ == BufferKind::device) {
    int before = 0;
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(device_);
    (void)cudaFree(data_);
    (void)cudaSetDevice(before);
  } else {
    (void)cudaFreeHost(data_);
  }
}

}  // namespace ggml::cuda
