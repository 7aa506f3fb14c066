#include "ggml/cuda.h"
#include "models/test_device.h"

namespace llama::golden {

std::unique_ptr<ggml::Device> make_test_device() {
  ggml::CudaDevices cuda = ggml::find_cuda_devices();
  return cuda.devices.empty() ? nullptr : std::move(cuda.devices.front());
}

}  // namespace llama::golden
