#pragma once

#include <cstdint>

#include "cuda/planes.h"

/// Plain arguments of the kernels; no CUDA header here, so that host code may include it.
namespace ggml::cuda {

/// A matrix (or a stack of them) in planes on the card.
struct PlanarWeight {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* high = nullptr;
  const std::uint8_t* scales = nullptr;
  const std::uint8_t* supers = nullptr;
  int k = 0;                         // weights in a row
  std::int64_t n = 0;                // rows of a matrix
  std::int64_t first = 0;            // row of the first matrix where it starts (a part of a fused matrix)
  std::int64_t rows_per_matrix = 0;  // from one matrix of a stack to the next
};

/// Activation rows rounded to 8 bits.
struct QuantisedRows {
  std::int8_t* q = nullptr;  // [k] codes
  float* d = nullptr;        // [k / 32] scales
  float* s = nullptr;        // [k / 16] sums of the values of 16 codes: what a minimum multiplies
};

/// Real sizes of the step, in memory of the card.
struct DeviceCounts {
  int n_tokens = 0;
  int n_outputs = 0;
  int n_spans = 0;
};

/// How many rows are real: `per_count` times a count of the step, or fixed.
struct RowCount {
  const int* count = nullptr;  // null: fixed
  int per_count = 0;
  int capacity = 0;
};

/// Which matrix of a stack each result row uses.
struct ExpertIds {
  const std::int32_t* ids = nullptr;  // null: one matrix
  int n_used = 1;                     // result rows per token
  bool shared_input = false;          // the rows of a token use one input row
  int begin = 0, end = 0;             // experts outside give zero rows
};

/// What follows a product: y = y * scale + bias.
struct Epilogue {
  const float* scale = nullptr;
  const float* bias = nullptr;
  bool scale_per_expert = false;
  std::int64_t bias_stride = 0;  // from one expert's bias to the next
};

struct ProductArgs {
  PlanarWeight w;
  QuantisedRows x;                 // quantised types
  const float* x_float = nullptr;  // float types: rows already rounded as the type wants
  float* y = nullptr;
  std::int64_t y_stride = 0;
  RowCount rows;  // result rows (pairs where there are ids)
  ExpertIds experts;
  Epilogue epilogue;
  bool beside = false;  // tiles: the launch before is of tiles, too, and neither makes nor changes what this one reads
};

}  // namespace ggml::cuda
