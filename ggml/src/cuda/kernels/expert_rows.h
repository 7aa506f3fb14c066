#pragma once

#include "cuda/kernels/activations.h"
#include "cuda/kernels/plane_kinds.h"

struct CUstream_st;

/// The feed-forward of few rows in two launches: gate and up to hidden values, down to the sum of the experts. All
/// weights are of quantised types.
namespace ggml::cuda {

/// hidden = act(gate x) * (up x).
struct GateUpArgs {
  ProductArgs gate, up;  // of one kind of planes; rows, experts and x are the gate's; y is not used
  PlaneKind kind = PlaneKind::bits_4_half;
  GatedParams activation;
  float* hidden = nullptr;  // [width, rows]
  RoundedOutput rounded;    // also in this form, if any; needs counters
  int* arrived = nullptr;   // zeros, gate_up_counters() of them
};
[[nodiscard]] int gate_up_counters(const RowCount& rows, std::int64_t width);
void launch_gate_up(const GateUpArgs& args, CUstream_st* stream);

/// y [n, tokens] = sum over the used experts of a token, in the order of its ids, of weight * product with its hidden
/// values, which every block rounds for itself.
struct DownSumArgs {
  ProductArgs down;  // rows: pairs; neither x nor y is used
  PlaneKind kind = PlaneKind::bits_4_half;
  const float* hidden = nullptr;  // [k, pairs]
  ActType act = ActType::q8_0;
  const float* weights = nullptr;
  float* y = nullptr;
  RowCount tokens;
};
/// Whether the rounded hidden values of a token's experts fit into a block's memory.
[[nodiscard]] bool down_sum_fits(int k, int n_used);
/// The experts' ids must have been written before the kernel before this one began: they are read at once.
void launch_down_sum(const DownSumArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
