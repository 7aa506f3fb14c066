#include "ggml/cpu.h"
#include "models/test_device.h"

namespace llama::golden {

std::unique_ptr<ggml::Device> make_test_device() {
  ggml::CpuOptions options;
  options.n_threads = 2;
  return ggml::make_cpu_device(options);
}

}  // namespace llama::golden
