#pragma once

#include "cuda/kernels/activations.h"
#include "cuda/kernels/products.h"
#include "cuda/kernels/row_norm.h"

struct CUstream_st;

/// Products of a single row of activations, with what comes before and after them in the same launch.
namespace ggml::cuda {

struct StagedProducts {
  RowProducts products;                // of one k; rows and experts are not used
  ActType act[kMaxProducts] = {};      // the form of the row that each matrix multiplies
  RowNorm norm;                        // if there is one, the row comes from it and the products' x is not used
  const float* residual = nullptr;     // added to the result of product 0
  int rows_per_block[kMaxProducts]{};  // filled in by launch_staged_products()
};
/// All can_stage(), of quantised types.
void launch_staged_products(StagedProducts args, CUstream_st* stream);
/// Whether a multiprocessor has so much of the weights that blocks come and go: then those of launch_row_products(),
/// which have less to do before they begin, are faster.
[[nodiscard]] bool is_too_large_to_stage(const RowProducts& products);
/// For one number of lanes per weight row; instantiated in instances/.
template <int kLanes>
void launch_staged_products_of(const StagedProducts& args, unsigned blocks, int bytes, CUstream_st* stream);

}  // namespace ggml::cuda
