#pragma once

#include "cuda/kernels/weights.h"
#include "ggml/op.h"

struct CUstream_st;

/// Kernels over activations: rounding, norms, elementwise arithmetic.
namespace ggml::cuda {

/// Rounds rows to 8 bits with one scale per 32 or 256 values, as ActType q8_0, q8_1 and q8_k mean it.
struct QuantiseArgs {
  const float* x = nullptr;
  QuantisedRows to;
  int k = 0;
  RowCount rows;
};
void launch_quantise(ActType act, const QuantiseArgs& args, CUstream_st* stream);
/// The rounded values again as f32 (the primitive quantise_act).
void launch_round(ActType act, const float* x, float* y, int k, const RowCount& rows, CUstream_st* stream);

/// A form in which a kernel also leaves its result; f32: none.
struct RoundedOutput {
  ActType act = ActType::f32;
  QuantisedRows to;
};

/// s = x + residual; y = norm(s) * weight + bias.
struct NormArgs {
  const float* x = nullptr;
  const float* residual = nullptr;
  float* y = nullptr;
  float* sum = nullptr;
  const float* weight = nullptr;  // [n] or [n, heads]
  const float* bias = nullptr;
  int n = 0;
  int heads = 1;  // > 1: row r uses weights (r % heads)
  NormKind kind = NormKind::rms;
  float eps = 0.0f;
  RowCount rows;
  RoundedOutput rounded[2];  // only where norm_fits_registers()
};
void launch_norm(const NormArgs& args, CUstream_st* stream);
/// Whether rows of n values with weights for `heads` heads can be normalised without reading them twice.
[[nodiscard]] bool norm_fits_registers(int n, int heads);
void launch_norm_in_registers(const NormArgs& args, CUstream_st* stream);

enum class BinaryKind : std::uint8_t { add, mul };
struct BinaryArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  float* y = nullptr;
  std::int64_t shape[4] = {1, 1, 1, 1};             // of y; n of the last live axis follows from `rows`
  std::int64_t a_stride[4] = {}, b_stride[4] = {};  // 0: repeated
  std::int64_t row = 1;                             // elements that one of `rows` counts
  RowCount rows;
};
void launch_binary(BinaryKind kind, const BinaryArgs& args, CUstream_st* stream);

/// y[i] = f(x[i]) over rows * width elements.
void launch_unary(const UnaryParams& params, const float* x, float* y, std::int64_t width, const RowCount& rows,
                  CUstream_st* stream);
struct GatedArgs {
  const float* gate = nullptr;
  const float* up = nullptr;
  std::int64_t stride = 0;  // from row to row of gate and up
  float* y = nullptr;
  std::int64_t width = 0;
  RowCount rows;
};
void launch_gated(const GatedParams& params, const GatedArgs& args, CUstream_st* stream);
/// Only the rounded form of y; rows of gate and up are aligned to 16 bytes, width is a multiple of 32.
void launch_gated_rounded(const GatedParams& params, const GatedArgs& args, const RoundedOutput& to,
                          CUstream_st* stream);
void launch_clamp(float bound, float* x, std::int64_t width, const RowCount& rows, CUstream_st* stream);
/// y = x, rows * bytes_per_row bytes (a multiple of 4).
void launch_copy(const void* x, void* y, std::int64_t words_per_row, const RowCount& rows, CUstream_st* stream);

/// y = x, rows * per_row floats; `y` is read on the card when the launch runs. Sets *nan if a value is no number.
void launch_put_result(const float* x, float* const* y, std::int64_t per_row, const RowCount& rows, int* nan,
                       CUstream_st* stream);

/// How angles grow with the position, worked out once.
struct RotateArgs {
  const std::int32_t* positions = nullptr;
  const float* factors = nullptr;       // [n_rot / 2] or null
  const double* frequencies = nullptr;  // [n_rot / 2]: angle per position
  float magnitude = 1.0f;
  const float* x = nullptr;
  float* y = nullptr;
  int d = 0, heads = 0, n_rot = 0;
  int first = 0;  // element of a head from which on n_rot are rotated
  bool adjacent = false;
  RowCount tokens;
};
void launch_rotate(const RotateArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
