#include "cuda/kernels/get_rows.cuh"
#include "cuda/kernels/tile_product.cuh"

template void ggml::cuda::launch_get_rows<4, ggml::cuda::ScaleForm::k_min, 0>(const GetRowsArgs&, CUstream_st*);
template void ggml::cuda::launch_tile_product<4, ggml::cuda::ScaleForm::k_min, 0>(const ProductArgs&, CUstream_st*);
template void ggml::cuda::launch_expert_tiles<4, ggml::cuda::ScaleForm::k_min, 0>(const ProductArgs&,
                                                                                  const ExpertTiles&, CUstream_st*);
