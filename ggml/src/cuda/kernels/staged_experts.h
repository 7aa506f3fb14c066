#pragma once

#include "cuda/kernels/expert_rows.h"
#include "cuda/kernels/route.h"
#include "cuda/kernels/row_norm.h"

struct CUstream_st;

/// The experts of few tokens as expert_rows.h has them, with weights that are copied ahead, and of a single token with
/// the norm before and the choice of experts in the same launches.
namespace ggml::cuda {

/// logits = router * norm(x) of a single token, a block per expert.
struct RouterArgs {
  RowNorm norm;
  const float* router = nullptr;  // [n, n_expert]
  Epilogue epilogue;
  int n_expert = 0;
  float* logits = nullptr;
};
void launch_router(const RouterArgs& args, CUstream_st* stream);

/// Whether experts can be chosen by the kernels that use them.
[[nodiscard]] inline bool choice_fits(const MoeRouteParams& p) {
  constexpr int kMostExperts = 256, kMostUsed = 32;
  return p.n_expert <= kMostExperts && p.n_used <= kMostUsed && p.gating == Gating::softmax && p.normalise &&
         !p.has_selection_bias && p.n_groups <= 1 && p.keep_ratio == 0.0f;
}

struct StagedGateUpArgs {
  GateUpArgs base;  // not rounded; its ids are not used where there is a choice
  RowNorm norm;     // single tokens: where the row comes from, else base.gate.x
  ActType act = ActType::q8_k;
  RouteArgs choice;        // logits null: base.gate.experts.ids tell
  int rows_per_block = 0;  // filled in by launch_staged_gate_up()
};
[[nodiscard]] bool staged_gate_up_fits(const GateUpArgs& args);
void launch_staged_gate_up(StagedGateUpArgs args, CUstream_st* stream);

struct StagedDownSumArgs {
  DownSumArgs base;
  RouteArgs choice;                 // logits null: base's ids and weights tell
  const float* residual = nullptr;  // [n, tokens] added to the sum
  int rows_per_block = 0;           // filled in by launch_staged_down_sum()
};
[[nodiscard]] bool staged_down_sum_fits(const DownSumArgs& args);
void launch_staged_down_sum(StagedDownSumArgs args, CUstream_st* stream);

}  // namespace ggml::cuda
