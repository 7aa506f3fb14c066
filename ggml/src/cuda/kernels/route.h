#pragma once

#include "cuda/kernels/weights.h"
#include "ggml/op.h"

struct CUstream_st;

namespace ggml::cuda {

/// Experts of few tokens: scores by an F32 router, then the choice and its weights, in one launch.
struct RouteArgs {
  const float* router = nullptr;  // [k, n_expert]
  Epilogue epilogue;
  const float* selection_bias = nullptr;  // [n_expert] or null
  const float* x = nullptr;               // [k, tokens]
  int k = 0;
  int n_expert = 0, n_used = 0;
  Gating gating = Gating::softmax;
  bool normalise = false;
  float scale = 1.0f;
  float* logits = nullptr;  // [n_expert, tokens]
  int* arrived = nullptr;   // zeros, one per token
  std::int32_t* ids = nullptr;
  float* weights = nullptr;
  RowCount tokens;
};
[[nodiscard]] bool route_fits(int k, int n_expert, int n_used);
void launch_route(const RouteArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
