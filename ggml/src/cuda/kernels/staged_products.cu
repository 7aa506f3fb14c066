#include "cuda/kernels/staged_products.cuh"

namespace ggml::cuda {

// Instantiated in instances/.
extern template void launch_staged_products_of<16>(const StagedProducts&, unsigned, int, CUstream_st*);
extern template void launch_staged_products_of<32>(const StagedProducts&, unsigned, int, CUstream_st*);

namespace {

int row_bytes_of(PlaneKind kind, int k) {
  int bytes = 0;
  with_decoder(kind, [&]<class D>() { bytes = D::row_bytes(k / kUnit); });
  return bytes;
}

/// Most rows whose planes take no more than `bytes`.
int rows_within(int bytes, int row_bytes) {
  const int rows = bytes / row_bytes / kStagedRows * kStagedRows;
  return rows < kStagedRows ? kStagedRows : rows;
}

}  // namespace

bool is_too_large_to_stage(const RowProducts& products) {
  constexpr std::int64_t kMostBytes = 1 << 20;
  std::int64_t bytes = 0;
  for (int i = 0; i < products.n; ++i) {
    bytes += products.product[i].w.n * row_bytes_of(products.kind[i], products.product[i].w.k);
  }
  return bytes > kMostBytes * card_limits().multiprocessors;
}

void launch_staged_products(StagedProducts args, CUstream_st* stream) {
  RowProducts& products = args.products;
  const int k = products.product[0].w.k, fixed = static_cast<int>(sizeof(StagedHead)) + staged_input_bytes(k);
  const CardLimits card = card_limits();
  std::int64_t all = 0;
  for (int i = 0; i < products.n; ++i) all += products.product[i].w.n;
  const int per_block = static_cast<int>((all + card.multiprocessors - 1) / card.multiprocessors + kStagedRows - 1) /
                        kStagedRows * kStagedRows;
  int blocks = 0, bytes = 0;
  for (int i = 0; i < products.n; ++i) {
    const int row_bytes = row_bytes_of(products.kind[i], k);
    const bool at_once = fixed + per_block * row_bytes <= card.staged_bytes;
    const int rows = at_once ? per_block : rows_within(kSharedStagedBytes, row_bytes);
    args.rows_per_block[i] = rows;
    products.first_block[i] = blocks;
    blocks += static_cast<int>((products.product[i].w.n + rows - 1) / rows);
    bytes = rows * row_bytes > bytes ? rows * row_bytes : bytes;
  }
  const auto n = static_cast<unsigned>(blocks);
  if (staged_lanes(k) == 16) return launch_staged_products_of<16>(args, n, fixed + bytes, stream);
  launch_staged_products_of<32>(args, n, fixed + bytes, stream);
}

}  // namespace ggml::cuda
