#pragma once

#include "cuda/kernels/plane_kinds.h"
#include "cuda/kernels/weights.h"

struct CUstream_st;

/// Matrix products by kind of planes. Each function is instantiated in instances/ once per kind.
namespace ggml::cuda {

inline constexpr int kMaxVectorRows = 8;  // up to here every weight is read once for all rows

inline constexpr int kMaxProducts = 3;

/// Products of the same few rows with several matrices (query, key and value; gate and up), by one launch.
struct RowProducts {
  ProductArgs product[kMaxProducts];
  PlaneKind kind[kMaxProducts] = {};
  int n = 0;
  // Filled in by launch_row_products().
  int lanes[kMaxProducts] = {};
  int first_block[kMaxProducts] = {};

  void add(PlaneKind planes, const ProductArgs& args) {
    kind[n] = planes;
    product[n++] = args;
  }
};

/// Few rows (at most kMaxVectorRows of capacity, or any number of pairs with ids): a few lanes per weight row. The rows
/// of all products are as many.
void launch_row_products(RowProducts products, CUstream_st* stream);
/// For one number of rows per block; instantiated in instances/.
template <int kRows>
void launch_row_products_of(const RowProducts& products, unsigned blocks, CUstream_st* stream);

/// Many rows of one matrix: tiles on the int8 tensor cores.
template <int kBits, ScaleForm kForm, int kCenter>
void launch_tile_product(const ProductArgs& args, CUstream_st* stream);

/// Activation rows of a tile when a matrix meets so many: 64 or 128.
[[nodiscard]] constexpr int tile_rows(int rows) noexcept {
  return rows > 1024 ? 128 : 64;
}

/// Pairs sorted by expert, for tiles of a stack of matrices.
struct ExpertTiles {
  const std::int32_t* pairs = nullptr;        // [n_pairs] pair numbers, by expert
  const std::int32_t* tile_expert = nullptr;  // [n_tiles capacity] expert of each tile of `rows` pairs, -1: none
  const std::int32_t* tile_first = nullptr;   // where it starts in `pairs`
  const std::int32_t* tile_count = nullptr;   // how many pairs it has
  int capacity = 0;                           // tiles
  int rows = 64;                              // pairs of a full tile
};
template <int kBits, ScaleForm kForm, int kCenter>
void launch_expert_tiles(const ProductArgs& args, const ExpertTiles& tiles, CUstream_st* stream);

enum class FloatKind : std::uint8_t { f32, f16, bf16 };
void launch_float_vector_product(FloatKind kind, const ProductArgs& args, CUstream_st* stream);
void launch_float_tile_product(FloatKind kind, const ProductArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
