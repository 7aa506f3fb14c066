#pragma once

#include <memory>

#include "cuda/bound_op.h"

namespace ggml::cuda {

/// Norms of q and k, rotation and the append to the cache as one node. src: positions, factors if there are any, q, k,
/// v, pool, spans, block table. slots: norms of q and k, or none. dst: q, rotated.
struct HeadsParams {
  RopeParams rope;
  KvLayout kv;
  int n_head = 0;
  float norm_eps = 0.0f;
};
[[nodiscard]] std::unique_ptr<BoundOp> bind_heads(const BindContext& context, const HeadsParams& params,
                                                  const Node& node);
/// Whether attention of so many rows can leave its result rounded.
[[nodiscard]] bool attention_rounds_result(const AttentionParams& params, int rows);

}  // namespace ggml::cuda
