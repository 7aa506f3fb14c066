#include "cuda/kernels/get_rows.cuh"
#include "cuda/kernels/tile_product.cuh"

template void ggml::cuda::launch_get_rows<6, ggml::cuda::ScaleForm::k_16, 32>(const GetRowsArgs&, CUstream_st*);
template void ggml::cuda::launch_tile_product<6, ggml::cuda::ScaleForm::k_16, 32>(const ProductArgs&, CUstream_st*);
template void ggml::cuda::launch_expert_tiles<6, ggml::cuda::ScaleForm::k_16, 32>(const ProductArgs&,
                                                                                  const ExpertTiles&, CUstream_st*);
