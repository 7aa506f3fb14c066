#pragma once

#include <cuda_runtime.h>

#include "cuda/check.h"

namespace ggml::cuda {

/// Launches a kernel that may start before its predecessor in the stream has ended (kernels call wait_for_previous()).
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Args... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
}

/// The same in clusters of `cluster` blocks along x.
template <class... Params, class... Args>
void launch_cluster(void (*kernel)(Params...), dim3 grid, unsigned cluster, dim3 block, cudaStream_t stream,
                    Args... args) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = cluster;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
}

/// Of the copied weights of blocks that share a multiprocessor because there are many.
inline constexpr int kSharedStagedBytes = 48 * 1024;

/// What the current card has.
struct CardLimits {
  int multiprocessors = 0;
  bool has_clusters = false;        // of blocks that see each other's memory
  bool has_group_products = false;  // warp_group_mma.cuh
  int staged_bytes =
      0;  // of a block that has a multiprocessor's memory nearly to itself, with room for a second kernel
};
inline CardLimits card_limits() {
  constexpr int kMostStaged = 128 * 1024;
  int device = 0, most = 0, clusters = 0;
  CardLimits limits;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&limits.multiprocessors, cudaDevAttrMultiProcessorCount, device));
  CUDA_CHECK(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device));
  limits.has_clusters = clusters != 0;
#ifdef GGML_CUDA_HAS_90A
  int major = 0, minor = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  limits.has_group_products = major == 9 && minor == 0;
#endif
  CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  limits.staged_bytes = most < kMostStaged ? most : kMostStaged;
  return limits;
}

/// Lets blocks of a kernel have `bytes` of dynamic memory. The multiprocessor keeps the largest shared memory it can
/// have: it would have to run empty before it could change to that.
template <class... Params>
void use_shared_memory(void (*kernel)(Params...), int bytes) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
}

}  // namespace ggml::cuda
