#include "cuda/kernels/vector_product.cuh"

namespace ggml::cuda {

// Instantiated in instances/.
extern template void launch_row_products_of<1>(const RowProducts&, unsigned, CUstream_st*);
extern template void launch_row_products_of<2>(const RowProducts&, unsigned, CUstream_st*);
extern template void launch_row_products_of<4>(const RowProducts&, unsigned, CUstream_st*);
extern template void launch_row_products_of<8>(const RowProducts&, unsigned, CUstream_st*);

void launch_row_products(RowProducts products, CUstream_st* stream) {
  int blocks = 0;
  for (int i = 0; i < products.n; ++i) {
    const PlanarWeight& w = products.product[i].w;
    products.lanes[i] = lanes_per_row(w.k);
    products.first_block[i] = blocks;
    blocks += static_cast<int>((w.n * products.lanes[i] + kVectorThreads - 1) / kVectorThreads);
  }
  const auto n = static_cast<unsigned>(blocks);
  const int rows = products.product[0].rows.capacity;
  if (products.product[0].experts.ids != nullptr || rows == 1) return launch_row_products_of<1>(products, n, stream);
  if (rows == 2) return launch_row_products_of<2>(products, n, stream);
  if (rows <= 4) return launch_row_products_of<4>(products, n, stream);
  launch_row_products_of<8>(products, n, stream);
}

}  // namespace ggml::cuda
