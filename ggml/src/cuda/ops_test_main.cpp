#include <gtest/gtest.h>

#include <cstdio>

#include "cpu/test_bed.h"
#include "ggml/cuda.h"

// The op tests of the CPU, run on the first card.
int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  testing::InitGoogleTest(&argc, argv);
  const ggml::CudaDevices cuda = ggml::find_cuda_devices();
  if (cuda.devices.empty()) {
    std::printf("skipped: %s\n", cuda.problem.c_str());
    return kSkipped;
  }
  std::printf("on %s: %s\n", cuda.devices[0]->name().c_str(), cuda.devices[0]->description().c_str());
  ggml::cpu::test::test_device_instead(*cuda.devices[0]);
  return RUN_ALL_TESTS();
}
