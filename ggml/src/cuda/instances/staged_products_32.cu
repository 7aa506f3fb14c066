#include "cuda/kernels/staged_products.cuh"

template void ggml::cuda::launch_staged_products_of<32>(const StagedProducts&, unsigned, int, CUstream_st*);
