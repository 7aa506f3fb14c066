#pragma once

#include "cuda/kernels/products.h"
#include "cuda/kernels/weights.h"

struct CUstream_st;

/// Kernels that choose: rows by id, the largest values, experts.
namespace ggml::cuda {

/// y[i] = row ids[i] of a table; zeros for an id outside [0, table_rows).
struct GetRowsArgs {
  PlanarWeight table;                 // quantised types
  const void* float_table = nullptr;  // float types and activations
  const std::int32_t* ids = nullptr;
  float* y = nullptr;
  int k = 0;
  std::int64_t table_rows = 0;  // of the table, or its capacity when it is an activation
  RowCount table_live;          // activations: real rows; fixed 0 otherwise
  RowCount rows;                // of the result
};
template <int kBits, ScaleForm kForm, int kCenter>
void launch_get_rows(const GetRowsArgs& args, CUstream_st* stream);
void launch_get_float_rows(FloatKind kind, const GetRowsArgs& args, CUstream_st* stream);

void launch_softmax(const float* x, float* y, int n, const RowCount& rows, CUstream_st* stream);

/// Ids of the k largest of n values, ties to the lower id, with group limits (see TopKParams).
struct TopKArgs {
  const float* x = nullptr;
  std::int32_t* ids = nullptr;
  int n = 0, k = 0, n_groups = 1, n_groups_used = 1;
  int min_kept = 0;
  float keep_ratio = 0.0f;  // > 0: ids of later ranks whose value is below this share of the largest become -1
  RowCount rows;
};
void launch_top_k(const TopKArgs& args, CUstream_st* stream);

/// y[j] = x[ids[j]], then softmax, normalise, scale (see GatherParams).
struct GatherArgs {
  const float* x = nullptr;
  const std::int32_t* ids = nullptr;
  float* y = nullptr;
  int n = 0, k = 0;
  std::int64_t x_stride = 0;  // 0: the same values for every token
  bool softmax = false, normalise = false;
  float scale = 1.0f;
  RowCount rows;
};
void launch_gather(const GatherArgs& args, CUstream_st* stream);

/// Sum over the used experts of a token, in the order of its ids.
struct WeightedSumArgs {
  const float* x = nullptr;
  const std::int32_t* ids = nullptr;
  const float* weights = nullptr;  // null: 1
  float* y = nullptr;
  int n = 0, n_used = 0, begin = 0, end = 0;
  RowCount tokens;
};
void launch_weighted_sum(const WeightedSumArgs& args, CUstream_st* stream);

/// Sorts pairs by expert and cuts them into tiles.
struct SortArgs {
  const std::int32_t* ids = nullptr;
  int n_expert = 0, begin = 0, end = 0;
  RowCount pairs;
  std::int32_t* sorted = nullptr;
  std::int32_t* tile_expert = nullptr;
  std::int32_t* tile_first = nullptr;
  std::int32_t* tile_count = nullptr;
  int tile_capacity = 0;
  int tile_rows = 64;
};
/// Tiles that any choice of `pairs` pairs over the experts can need.
[[nodiscard]] constexpr int tiles_for(int pairs, int n_expert, int tile_rows) {
  const int full = pairs / tile_rows, partial = n_expert < pairs ? n_expert : pairs;
  return full + partial;
}
void launch_sort_by_expert(const SortArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
