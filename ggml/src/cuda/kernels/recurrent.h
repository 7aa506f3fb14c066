#pragma once

#include "ggml/kv_layout.h"
#include "ggml/op.h"

struct CUstream_st;

/// Ops along the rows of each span: recurrent layers, whose states lie in slots of a pool, and pooling.
namespace ggml::cuda {

struct StateInputs {
  float* pool = nullptr;
  StateLayout layout;
  const AttnSpan* spans = nullptr;
  const int* n_spans = nullptr;
  int max_spans = 0;
};

struct Conv1dArgs {
  StateInputs states;
  const float* x = nullptr;
  const float* filters = nullptr;  // [kernel, channels]
  float* y = nullptr;
  int channels = 0, kernel = 0;
  Activation act = Activation::none;
  int tokens = 0;  // capacity
};
void launch_conv1d(const Conv1dArgs& args, CUstream_st* stream);

/// The gated delta rule. `raw`: q and k come without their norms, g and beta as they were projected.
struct DeltaRuleArgs {
  StateInputs states;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  std::int64_t qk_stride = 0, v_stride = 0;  // from token to token
  const float* g = nullptr;                  // [n_head_v, tokens]; raw: alpha
  const float* beta = nullptr;
  bool raw = false;
  const float* decay = nullptr;  // raw only: [n_head_v] each, and eps of the norms
  const float* dt = nullptr;
  float eps = 0.0f;
  float* y = nullptr;
  int head_dim = 0, n_head_k = 0, n_head_v = 0;
  bool tiled = false;
};
/// head_dim may be at most kMostDeltaDim.
inline constexpr int kMostDeltaDim = 1024;
void launch_delta_rule(const DeltaRuleArgs& args, CUstream_st* stream);

/// y [n, spans]: a row per span.
struct PoolArgs {
  PoolKind kind = PoolKind::mean;
  const float* x = nullptr;
  float* y = nullptr;
  int n = 0;
  const AttnSpan* spans = nullptr;
  const int* n_spans = nullptr;
  int max_spans = 0;
};
void launch_pool(const PoolArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
