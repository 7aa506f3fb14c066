#include "cuda/kernels/vector_product.cuh"

template void ggml::cuda::launch_row_products_of<4>(const RowProducts&, unsigned, CUstream_st*);
