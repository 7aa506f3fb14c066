#include "ggml/cuda.h"

namespace ggml {

CudaDevices find_cuda_devices(int /*per_card*/) {
  return {{}, "this build has no CUDA backend (cmake -DGGML_CUDA=ON)"};
}

}  // namespace ggml
